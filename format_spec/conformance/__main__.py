"""`python -m strandline.format_spec.conformance --reader "cmd {table} {version}"`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from strandline.format_spec.conformance.runner import DEFAULT_CASES, load_cases, report, run_case


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the exit code is 0 only if all passed."""
    parser = argparse.ArgumentParser(
        prog="python -m strandline.format_spec.conformance",
        description="Prove a reader of Strandline tables, written in any language.",
    )
    parser.add_argument(
        "--reader",
        required=True,
        help="the reader's command, such as \"./reader {table} {version}\"; see the kit's README",
    )
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES, help="the file of cases")
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    options = parser.parse_args(arguments)
    if not options.cases.is_file():
        parser.error(
            f"there is no {options.cases}: the cases and their tables are part of the repository, "
            "not of the installed package. Pass --cases format_spec/conformance/cases.json."
        )
    chosen = [case for case in load_cases(options.cases) if options.only in case.name]
    results = [run_case(case, options.reader) for case in chosen]
    sys.stdout.write(report(results) + "\n")
    return 0 if results and all(result.reason is None for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
