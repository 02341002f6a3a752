"""Our few Java classes, compiled inside Spark's JVM by the compiler that Spark ships with.

They stand in the package as source. Once per JVM they are compiled, put into a temporary jar and
added to the JVM's class path, so that Spark finds `format("strandline")`. Executors get the same
jar with their first task.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.tableformat.errors import StrandlineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE: Final = "strandline.jvm"
_SERVICE: Final = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_JAVA_LEVEL: Final = 8
"""Static methods of interfaces, as Scala has them, need that much of Janino."""
_LOCK: Final = threading.Lock()


class JvmUnreachable(StrandlineError):
    """The session runs in another place; Spark's own scan cannot be set up from this process."""


def require_jvm(spark: SparkSession) -> Any:
    """The JVM of a session, or an error that says what works without one."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        raise JvmUnreachable(
            "this is a Spark Connect session: its JVM cannot be reached from here. Nothing was "
            "changed. Read with the Python data source, format('strandline')."
        )
    return jvm


def load_classes(jvm: Any) -> Any:
    """The Java package with our classes, which are compiled when first asked for."""
    with _LOCK:
        if not has_class(jvm, f"{PACKAGE}.TableSource"):
            loader = _loader(jvm)
            loader.addURL(jvm.java.io.File(str(_jar(jvm, loader))).toURI().toURL())
    return jvm.strandline.jvm


def has_class(jvm: Any, name: str) -> bool:
    """Whether the JVM can load a class."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark

    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)  # noqa: FBT003 - Java takes no names
    except Py4JJavaError:
        return False
    return True


def _loader(jvm: Any) -> Any:
    """The class loader that all sessions of the JVM share and that takes more jars."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = None
    while loader is not None:
        if "MutableURLClassLoader" in loader.getClass().getName():
            found = loader  # the outermost one: those of sessions are its children
        loader = loader.getParent()
    if found is None:
        raise StrandlineError(
            "this JVM takes no more jars: its class loader is none of Spark's. Start Spark through "
            "PySpark or spark-submit."
        )
    return found


def _jar(jvm: Any, loader: Any) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="strandline-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "strandline.jar"
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in _compiled(jvm, loader).items():
            jar.writestr(name, code)
        jar.writestr(_SERVICE, f"{PACKAGE}.TableSource\n")
    return path


def _compiled(jvm: Any, loader: Any) -> dict[str, bytes]:
    """Class files by their names in a jar."""
    janino = jvm.org.codehaus.janino
    resource = jvm.org.codehaus.commons.compiler.util.resource
    classes = jvm.java.util.HashMap()
    compiler = janino.Compiler()
    compiler.setIClassLoader(janino.ClassLoaderIClassLoader(loader))
    compiler.setTargetVersion(_JAVA_LEVEL)
    compiler.setClassFileCreator(resource.MapResourceCreator(classes))
    folder = resources.files("strandline.spark") / "jvm_classes"
    sources = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".java")), key=lambda f: f.name
    )
    array = jvm.java.lang.reflect.Array.newInstance(
        jvm.java.lang.Class.forName(f"{resource._fqn}.Resource"),  # noqa: SLF001 - a package's name
        len(sources),
    )
    for place, source in enumerate(sources):
        array[place] = resource.StringResource(source.name, source.read_text("utf-8"))
    compiler.compile(array)
    return {str(name): bytes(classes[name]) for name in classes}
