import os
import subprocess
import sys
from pathlib import Path

import bireme
from bireme.settings.alias import with_alias

PACKAGE = Path(bireme.__file__).parent
BOOTSTRAP = str(PACKAGE / "horovod" / "bootstrap")


def python(code, *, path=()):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, str(PACKAGE.parent)])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=with_alias(env, BOOTSTRAP),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_an_unmodified_import_means_ours_and_the_folder_is_gone_from_the_path():
    code = (
        "import sys, horovod.common.util as util; "
        f"print(util.__name__, {BOOTSTRAP!r} in sys.path, 'torch' in sys.modules)"
    )
    assert python(code) == ["bireme.horovod.common.util", "False", "False"]


def test_the_sitecustomize_that_it_hides_runs_too(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = __name__\n")
    (tmp_path / "usercustomize.py").write_text("import sys; sys.users = __name__\n")
    code = "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__)"
    assert python(code, path=[str(tmp_path)]) == [
        "sitecustomize",
        str(tmp_path / "sitecustomize.py"),
    ]


def test_children_inherit_it():
    child = "import horovod; print(horovod.__name__)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    assert python(code) == ["bireme.horovod"]
