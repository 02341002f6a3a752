"""The conformance kit: a reader in any language proves itself against recorded tables."""
