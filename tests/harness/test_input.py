"""Wrong input: each message names the value, the bound and a remedy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pyrdma import Axis, Experiment, InvalidArgument, registry, units
from pyrdma import __version__ as pyrdma_version
from pyrdma.experiment import Value
from pyrdma.profiles import FOLDER, Profile, names
from pyrdma.runs import Options, execute
from tests.errors import raises, unnamed
from tests.harness.support import FAKE, environment, has_provider, pyrdma, without_rdma_core


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["run", "krcore/fig10z"], ["krcore/fig10z", "krcore/fig10b"]),
        (["run", FAKE, "--fabric", "smh"], ["smh", "sim", "shm", "verbs"]),
        (["run", FAKE, "--fabric", "verbs"], ["verbs", "there is nothing to send"]),
        (["run", FAKE, "--set", "m=1"], ["m", "behaviour", "n"]),
        (["run", FAKE, "--set", "n"], ["n", "KEY=VALUE"]),
        (["run", FAKE, "--set", "n=64,64"], ["'n'", 64, "measured twice", "--repetitions"]),
        (["run", FAKE, "--set", "n=1", "--set", "n=2"], ["n twice", "--set n=1,2"]),
        (["run", FAKE, "--set", "n=1,x"], ["'n'", "'x'", "1, 2, 3"]),
        (["run", FAKE, "--set", "link.rate_gbps=1,2"], ["link.rate_gbps", "'1,2'", 10000]),
        (["run", FAKE, "--seeds", "1-3,2"], ["seed 2", "measured twice", "repetitions"]),
        (["run", FAKE, "--profile", "cx55"], ["cx55", "cx5"]),
        (
            ["run", FAKE, "--set", "link.rate_gbps=-1"],
            ["link.rate_gbps", -1, "Gbps", 0.001, 10000],
        ),
        (
            ["run", FAKE, "--set", "link.rate=1"],
            ["link.rate", "link.rate_gbps"],
        ),
        (["workloads", "VerbsLod"], ["VerbsLod", "VerbsLoad"]),
        (["run", "no/such/file.py"], ["no/such/file.py"]),
        (["claims", "krcor"], ["krcor", "krcore"]),
        (["run", FAKE, "--jobs", "0"], ["jobs", 1]),
        (["run", FAKE, "--jobs", str(10**30)], ["jobs", 10**30, 4096]),
        (["run", FAKE, "--seed", "-1"], ["seed", 0]),
        (["run", FAKE, "--seed", str(2**64)], ["seed", 2**64 - 1]),
        (["fuzz", "fabric", "--seeds", str(10**30)], ["seeds", 10**30, 2**31 - 1]),
        (["fuzz", "fabric", "--jobs", str(10**30)], ["jobs", 10**30, 4096]),
        (["calibrate", "--fabric", "shm", "--out", f"{FAKE}/a.toml"], ["--out", FAKE]),
    ],
)
def test_wrong_arguments(arguments: list[str], values: list[object], tmp_path: Path) -> None:
    out = [] if "--out" in arguments or arguments[0] == "workloads" else ["--out", str(tmp_path)]
    done = pyrdma(*arguments, *out)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert unnamed(done.stderr, *values) == []


@pytest.mark.parametrize("words", [["run", "fabric/latency", "--help"], ["list", "fabric/latency"]])
def test_what_can_be_set_is_shown_with_default_unit_and_bounds(words: list[str]) -> None:
    done = pyrdma(*words)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    axis = "size B 8, 512, 4096, 65536 2, 4, 8,"
    parameter = "depth 128 count 1 to 32,768 requests in flight per thread"
    profile = "link.rate_gbps 100 Gbps 0.001 to 10000"
    assert unnamed(text, axis, parameter, profile) == []
    assert ("--fabric" in text) == (words[0] == "run")


def test_help_ignores_what_is_no_experiment_and_names_it_alone() -> None:
    with_folder = pyrdma("run", FAKE, "--out", "some/folder", "--help")
    assert unnamed(with_folder.stdout, "fake/numbers", "1, 2, 3, 4", "count") == []
    assert with_folder.stderr == ""
    alone = pyrdma("run", "fabric/latensy", "--help")
    assert unnamed(alone.stderr, "fabric/latensy", "fabric/latency") == []


def test_workloads_are_listed_with_their_parameters() -> None:
    assert unnamed(pyrdma("workloads").stdout, "VerbsLoad", "TailwindStore") == []
    for name in ("VerbsLoad", "verbs_load"):
        parameters = {p["name"]: p for p in json.loads(pyrdma("workloads", name, "--json").stdout)}
        depth = parameters["depth"]
        assert (depth["default"], depth["min"], depth["max"]) == (128, 1, 32768)


def test_a_setting_with_commas_is_several_values() -> None:
    axes = {"n": Axis([1, 2]), "series": Axis(["a, b", "c"])}
    experiment = Experiment(id="a/b", title="t", profile="cx5", measure=print, axes=axes)

    def values(name: str, value: str | list[Value]) -> list[Value]:
        points = experiment.points(settings={name: value})
        return list(dict.fromkeys(point[name] for point in points))

    assert values("n", "4, 8.5") == [4, 8.5]
    assert values("n", [4, 8]) == [4, 8]
    assert values("series", "a, b") == ["a, b"], "a value of the axis"
    assert values("series", "c,d") == ["c", "d"]
    with raises(InvalidArgument, "'n'"):
        values("n", [])


def test_a_value_twice_in_an_axis_is_refused() -> None:
    for axis in (Axis([1, 2, 1]), Axis([1], full=[4, 4.0])):
        with raises(InvalidArgument, "a/b", "'n'", "twice", "--seeds"):
            Experiment(id="a/b", title="t", profile="cx5", measure=print, axes={"n": axis})


PROFILES = """
from pyrdma import Axis, Experiment

experiment = Experiment(
    id="mine/profiles", title="t", profile="cx5", axes={"profile": Axis(["cx5", "cx4"])},
    measure=lambda point: {"rate": 1.0},
)
"""


def test_an_axis_of_profiles_does_not_measure_one_machine_twice(tmp_path: Path) -> None:
    file = tmp_path / "profiles.py"
    file.write_text(PROFILES)
    with raises(InvalidArgument, "2 profiles", "shm", "own speed", "--set profile=cx5"):
        execute(str(file), Options(out=tmp_path, fabric="shm"))
    with raises(InvalidArgument, "2 profiles", "'cx6'", "--set profile=cx6"):
        execute(str(file), Options(out=tmp_path, profile="cx6"))
    one = Options(out=tmp_path, fabric="shm", settings={"profile": "cx5"}, repetitions=1)
    assert execute(str(file), one).outcome.measured == 1


def test_one_of_several_experiments_is_skipped_where_it_would_compare_profiles(
    tmp_path: Path,
) -> None:
    files = [tmp_path / "several.py", tmp_path / "others.py"]
    for file in files:
        file.write_text(PROFILES.replace("mine", file.stem))
    options = ("--fabric", "shm", "--quick", "--out", str(tmp_path))
    done = pyrdma("run", *map(str, files), *options)
    assert done.returncode == 0, done.stderr
    assert unnamed(done.stdout + done.stderr, "skipped", "shm", "--set profile=cx5") == []


def test_verbs_says_why_not_and_what_to_install(tmp_path: Path) -> None:
    words = ["run", "fabric/latency", "--fabric", "verbs", "--out", str(tmp_path)]
    done = pyrdma(*words, LD_LIBRARY_PATH=without_rdma_core(tmp_path / "libraries"))
    assert done.returncode == 1
    package = "libibverbs1" if has_provider() else "libibverbs-dev"
    assert unnamed(done.stderr, "verbs", package) == []
    assert not (tmp_path / "fabric").exists()


def change(text: str, pattern: str, replacement: str) -> str:
    changed, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1
    return changed


@pytest.mark.parametrize(
    ("pattern", "replacement", "values"),
    [
        (r"^rate_gbps = .*$", "", ["link.rate_gbps", "Gbps"]),
        (
            r"^rate_gbps = \{ value = ",
            "rate_gbps = { value = -",
            ["link.rate_gbps", -40, "Gbps", 0.001],
        ),
        (r"^rate_gbps = \{ value = \d+", 'rate_gbps = { value = "big"', ["link.rate_gbps", "big"]),
        (
            r"^rate_gbps = (.*)unit = \"Gbps\"",
            r'rate_gbps = \1unit = "KB"',
            ["link.rate_gbps", "KB", "Gbps"],
        ),
        (r"^rate_gbps", "rate_gbp", ["link.rate_gbp", "link.rate_gbps"]),
        (r"^rate_gbps = .*$", "rate_gbps = 4096", ["link.rate_gbps", "value", "unit", "source"]),
        (
            r"^(rate_gbps = .*)source = .*$",
            r'\1source = "a friend" }',
            ["link.rate_gbps", "a friend"],
        ),
        (r"^\[link\]$", "[lnk]", ["lnk", "link"]),
        (r"^nodes = .*$", "nodes = 0", ["nodes", 0, 1]),
        (r"^nodes = .*$", "", ["nodes", "int"]),
        (r"^nodes = .*$", "nodes 3", ["TOML"]),
    ],
)
def test_a_wrong_profile_names_file_key_unit_and_range(
    pattern: str, replacement: str, values: list[object], tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(change((FOLDER / "cx5.toml").read_text(), pattern, replacement))
    with raises(InvalidArgument, path, *values):
        Profile.load(path)


def test_profiles_that_come_along_load_and_overrides_change_the_hash() -> None:
    for name in names():
        profile = Profile.load(name)
        assert profile.name == name
        changed = Profile.load(name, {"link.rate_gbps": 1234.5})
        assert changed.values()["link.rate_gbps"] == 1234.5
        assert changed.digest() != profile.digest()


def test_experiments_are_found_by_id_pattern_paper_and_path() -> None:
    assert registry.find(["krcore/fig10b"]) == ["krcore/fig10b"]
    assert set(registry.find(["krcore/fig10*"])) >= {"krcore/fig10a", "krcore/fig10d"}
    assert registry.find(["krcore"]) == [i for i in registry.ids() if i.startswith("krcore/")]
    assert registry.find(["all"]) == list(registry.ids())
    path = str(registry.root() / "krcore/fig10b.py")
    assert registry.find([path, "krcore/fig10b"]) == ["krcore/fig10b"]


def test_every_experiment_declares_what_it_must() -> None:
    for name in registry.ids():
        experiment = registry.load(name)
        assert experiment.title
        Profile.load(experiment.profile)
        if experiment.measure is not None:
            assert list(experiment.points(quick=True))
            assert len(list(experiment.points(quick=False))) >= len(list(experiment.points()))
            left_out = {"sim", "shm"} - set(experiment.fabrics)
            assert left_out <= set(experiment.why_not), f"{name} gives no reason against {left_out}"


def test_a_sweep_is_the_product_of_its_axes_less_what_where_leaves_out() -> None:
    experiment = Experiment(
        id="a/b",
        title="",
        profile="cx5",
        measure=None,
        axes={"x": Axis([1, 2]), "y": Axis([1, 2], full=[1, 2, 3])},
        where=lambda p: int(p["x"]) <= int(p["y"]),
    )
    assert [dict(p.params) for p in experiment.points()] == [
        {"x": 1, "y": 1},
        {"x": 1, "y": 2},
        {"x": 2, "y": 2},
    ]
    assert len(list(experiment.points(quick=False))) == 5
    assert [p["y"] for p in experiment.points(settings={"x": 1})] == [1, 2]
    with raises(InvalidArgument, "z"):
        next(experiment.points())["z"]


def test_units_convert_within_a_dimension_only() -> None:
    assert units.convert(1.5, "us", "ns") == pytest.approx(1500)
    assert units.convert(12.5, "GB/s", "Gbps") == pytest.approx(100)
    assert units.convert(0.14, "x", "percent") == pytest.approx(14)
    with raises(InvalidArgument, "us", "Gbps"):
        units.convert(1, "us", "Gbps")
    with raises(InvalidArgument, "usec"):
        units.convert(1, "usec", "ns")


def test_json_is_alone_on_standard_output() -> None:
    for command in (["list", "--json"], ["doctor", "--json"]):
        done = pyrdma(*command)
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), list)


def test_a_missing_package_is_named_with_its_remedy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pandas'] = None; from pyrdma.commands.main import main;"
        f"sys.argv = ['pyrdma', 'run', {FAKE!r}, '--out', {str(tmp_path)!r}]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 1
    assert re.search(r"`controller`.* -m pip install .*'pandas>=[0-9.]+'", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "use", ["rd.figures.new()", "rd.Result().frame", "rd.Result(histograms={'a': []}).latency('a')"]
)
def test_python_says_which_extra_has_a_missing_package(use: str) -> None:
    blocked = "sys.modules.update(pandas=None, hdrh=None, matplotlib=None)"
    code = f"""
import sys
{blocked}
import pyrdma as rd
try: {use}
except rd.Unavailable as error: print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert "`controller`" in done.stdout


def test_a_terminal_that_lacks_a_letter_shows_the_rest(tmp_path: Path) -> None:
    done = pyrdma("claims", "loco", "--out", str(tmp_path), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "loco/" in done.stdout


def test_the_version_is_printed() -> None:
    done = pyrdma("--version")
    assert (done.returncode, done.stdout) == (0, f"pyrdma {pyrdma_version}\n")


def test_importing_loads_neither_tables_nor_figures_nor_the_native_module() -> None:
    code = (
        "import sys, time; s = time.perf_counter(); import pyrdma;"
        "t = time.perf_counter() - s;"
        "heavy = {'pandas', 'matplotlib', 'yaml', 'scipy', 'numpy', 'pyrdma._core'};"
        "print(t, *sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    seconds, *loaded = done.stdout.split()
    assert loaded == []
    assert float(seconds) < 0.3
