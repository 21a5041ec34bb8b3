"""The launchers: they pass the schemas of those who read them, and keep their promises. No network."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("ray", reason="the launchers are checked by Ray, of the extra `cluster`")
import jsonschema  # these two come with Ray
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from replay_tutorial.cluster.command import LAUNCH_FILES, cluster, launch_file

HEALTH = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


@pytest.fixture
def aws() -> dict[str, Any]:
    return yaml.safe_load(launch_file("aws"))


@pytest.fixture
def kuberay() -> dict[str, dict[str, Any]]:
    """The documents of the file by their kinds."""
    return {document["kind"]: document for document in yaml.safe_load_all(launch_file("kuberay"))}


@pytest.mark.parametrize("name", LAUNCH_FILES)
def test_a_launcher_says_what_it_costs_how_to_end_it_and_that_it_was_not_run(name: str) -> None:
    comments = "".join(line for line in launch_file(name).splitlines(True) if line.startswith("#"))
    first = "".join(comments.splitlines(True)[2:4])
    assert re.search("NOT YET TESTED (IN THE CLOUD|ON A SLURM CLUSTER)", first)
    assert "Cost:" in comments
    assert re.search(r"SHUT DOWN.*(ray down|kubectl delete|scancel)", comments, re.DOTALL)
    assert max(map(len, launch_file(name).splitlines())) <= 110


def test_an_unknown_launcher_is_refused_and_the_others_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cluster(["launch", "azure"])
    assert re.search("'azure'.*aws.*kuberay", capsys.readouterr().err)


def test_aws_passes_rays_own_checks(aws: dict[str, Any]) -> None:
    validate_config(prepare_config(aws))


def test_aws_has_two_blanks(aws: dict[str, Any]) -> None:
    assert set(re.findall(r"FILL-IN-[A-Z]+", json.dumps(aws))) == {"FILL-IN-AMI", "FILL-IN-REGION"}


def test_no_actor_lands_on_the_learner_of_aws(aws: dict[str, Any]) -> None:
    kinds = aws["available_node_types"]
    learner, actors = kinds[aws["head_node_type"]], kinds["actors"]
    assert learner["resources"]["CPU"] == 0
    assert (actors["min_workers"], actors["max_workers"]) == (12, 48)
    assert actors["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert actors["node_config"]["ImageId"] == learner["node_config"]["ImageId"]


def test_aws_leaves_as_little_burning_as_it_can(aws: dict[str, Any]) -> None:
    assert aws["idle_timeout_minutes"] <= 10
    assert aws["provider"]["cache_stopped_nodes"] is False
    for kind in aws["available_node_types"].values():
        assert all(disk["Ebs"]["DeleteOnTermination"] for disk in kind["node_config"]["BlockDeviceMappings"])


def test_aws_asks_for_the_token_everywhere_and_opens_nothing(aws: dict[str, Any]) -> None:
    assert aws["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 ~/.ray/auth_token" in aws["setup_commands"]
    assert "IpPermissions" not in aws["provider"]["security_group"]
    for side in ("head", "worker"):
        stop, start = aws[f"{side}_start_ray_commands"]
        assert stop.endswith("ray stop")
        settings = dict(re.findall(r"(RAY_\w+)=(\S+)", start))
        assert settings.items() >= {**HEALTH, "RAY_AUTH_MODE": "token"}.items()


def test_a_rayjob_passes_the_schema_of_kuberay(kuberay: dict[str, dict[str, Any]]) -> None:
    schema = Path(__file__).with_name("rayjob_schema.json").read_text(encoding="utf-8")
    jsonschema.validate(kuberay["RayJob"], json.loads(schema))


def test_the_rayjob_asks_for_the_token_and_ends_with_its_job(kuberay: dict[str, dict[str, Any]]) -> None:
    spec = kuberay["RayJob"]["spec"]
    assert spec["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    assert spec["rayClusterSpec"]["rayVersion"] == pinned("ray")  # KubeRay asks for it beside a token
    assert spec["shutdownAfterJobFinishes"]
    assert spec["activeDeadlineSeconds"] <= 24 * 3600
    assert spec["backoffLimit"] == 0


def test_the_pods_find_the_runs_and_the_health_checks(kuberay: dict[str, dict[str, Any]]) -> None:
    spec = kuberay["RayJob"]["spec"]["rayClusterSpec"]
    head = spec["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    volume, mount = head["template"]["spec"]["volumes"][0], head["template"]["spec"]["containers"][0]
    claim = kuberay["PersistentVolumeClaim"]["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim
    assert mount["volumeMounts"] == [{"name": volume["name"], "mountPath": "/runs"}]
    assert "--runs /runs" in kuberay["RayJob"]["spec"]["entrypoint"]
    for group in [head, *spec["workerGroupSpecs"]]:
        container = group["template"]["spec"]["containers"][0]
        given = {variable["name"]: variable["value"] for variable in container["env"]}
        assert given.items() >= HEALTH.items()


def test_what_installs_ray_installs_the_version_that_was_tested() -> None:
    for text in (launch_file("aws"), (ROOT / "Dockerfile").read_text(encoding="utf-8")):
        assert set(re.findall(r"(?:ray\[default\]==|/ray:)(\d+\.\d+\.\d+)", text)) == {pinned("ray")}


def test_the_package_can_be_built_from_what_an_image_gets(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="it builds the package: the extra `dev`")
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines and "!constraints.txt" in lines
    for name in [line.removeprefix("!") for line in lines if line.startswith("!")]:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    code = "from hatchling.build import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=600)


def test_the_file_that_makes_an_image_starts_one_machine_and_passes_rays_own_checks(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "from_aws.md").read_text(encoding="utf-8")
    command = re.search(r"^(sed .*) > image\.yaml$", page, re.MULTILINE)[1]
    (tmp_path / "aws.yaml").write_text(launch_file("aws"), encoding="utf-8")
    made = subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, timeout=600)
    image = yaml.safe_load(made.stdout)
    validate_config(prepare_config(image))
    kinds = image["available_node_types"]
    assert (image["cluster_name"], kinds["actors"]["min_workers"]) == ("apex-image", 0)
    disks = [kind["node_config"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] for kind in kinds.values()]
    assert disks == [60, 60], "an image can't be larger than the disks of the machines that start from it"


STAND_IN = """#!/bin/bash
echo "$(basename "$0") $*" >> "$LOG"
case "$(basename "$0")" in
hostname) echo "10.0.0.1 fe80::1" ;;
python)
    exec > /dev/null 2>&1 # so that the test ends with the script, whatever has become of this process
    trap 'echo ended >> "$LOG"; exit 130' TERM
    kill -TERM "$PPID"
    echo signalled >> "$LOG"
    while kill -0 "$PPID"; do sleep 0.05; done ;;
esac
"""


LATE = 'until grep -q signalled "$LOG"; do sleep 0.05; done\n'


@pytest.mark.parametrize("late", ["", LATE], ids=["", "signal before its process is known"])
@pytest.mark.parametrize("arguments", [[], ["resume", "runs/X"]])
def test_slurm_starts_ray_on_all_nodes_and_ends_the_run_at_its_signal(
    arguments: list[str], late: str, tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("ray", "srun", "python", "hostname"):
        (tools / name).write_text(STAND_IN, encoding="utf-8")
        (tools / name).chmod(0o755)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").touch()
    script, log = tmp_path / "apex.sh", tmp_path / "log"
    before, line, after = launch_file("slurm").partition("run=$!\n")
    script.write_text(before + late + line + after, encoding="utf-8")
    job = {"SLURM_JOB_ID": "123456", "SLURM_NNODES": "5", "SLURM_CPUS_PER_TASK": "16"}
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(tmp_path), "LOG": str(log), **job}
    # `run` also waits for srun, which runs beside the script: it holds the captured output open.
    done = subprocess.run(
        ["bash", str(script), *arguments], env=environment, capture_output=True, check=False, timeout=900
    )
    assert done.returncode == 130, done.stderr
    said = log.read_text(encoding="utf-8").splitlines()
    assert said[1].startswith("ray start --head --node-ip-address 10.0.0.1 --port 23456 --num-cpus 0")
    nodes = next(line for line in said if line.startswith("srun"))
    assert nodes.startswith("srun --relative=1 --nodes=4 --ntasks=4 ray start --address 10.0.0.1:23456")
    asked = " ".join(arguments) or "train ALE/Seaquest-v5 --actors 64"
    assert f"python -m replay_tutorial {asked} --cluster 10.0.0.1:23456 --no-progress" in said
    assert "ended" in said


def pinned(package: str) -> str:
    """The version of a package in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return re.search(rf"^{package}==(\S+)", text, re.MULTILINE)[1]
