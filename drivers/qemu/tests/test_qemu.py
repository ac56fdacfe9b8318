"""The pure steps of qemu: command lines, allow-lists, and which disk images may be used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import PortGiven, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError
from yurt.sdk.executor import UserRules
from yurt.sdk.schema import check_config, decode_config, schema_of
from yurt_driver_qemu.config import (
    Image,
    TaskConfig,
    check_args,
    command_line,
    emulator_of,
    forwards,
    machine_of,
    plugin_config,
)
from yurt_driver_qemu.driver import process_spec
from yurt_driver_qemu.images import find_image

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/vm", local_dir="/a/vm/local", secrets_dir="/a/vm/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
IMAGE = Image(path="/a/vm/local/disk.img", format="raw")
SSH = PortGiven(label="ssh", host_ip="127.0.0.1", host_port=22000)


def request(
    config: Mapping[str, Any], *, dirs: TaskDirs = DIRS, env: Mapping[str, str] | None = None, memory_mb: int = 512
) -> TaskRequest:
    return TaskRequest(
        task_id="a/vm/0",
        alloc_id="5d7d7a5e-alloc",
        task_name="vm",
        job_id="j",
        group_name="g",
        namespace="default",
        config=decode_config(TaskConfig, {"image_path": "local/disk.img", **config}),
        env=env or {},
        dirs=dirs,
        resources=TaskResources(cpu_shares=100, memory_mb=memory_mb, reserved_cores=(0, 1)),
        ports=(SSH,),
    )


def words(config: Mapping[str, Any], **plugin: Any) -> str:
    argv = command_line(request(config), emulator="/usr/bin/qemu", image=IMAGE, plugin=plugin_config(plugin))
    return " ".join(argv)


def test_the_defaults_are_a_pc_in_software_with_an_ide_disk() -> None:
    assert words({}) == (
        "/usr/bin/qemu -machine type=pc,accel=tcg -name yurt-vm-5d7d7a5e -m 512M -smp 2 "
        "-drive file=/a/vm/local/disk.img,format=raw,if=ide -nographic"
    )


def test_options_of_a_task_reach_the_command_line() -> None:
    said = words({"machine_type": "q35", "accelerator": "kvm", "drive_interface": "virtio", "args": ["-nodefaults"]})
    assert "type=q35,accel=kvm" in said
    assert "-cpu host" in said
    assert "if=virtio" in said
    assert said.endswith("-nodefaults")


def test_the_monitor_and_the_guest_agent_are_there_when_asked_for() -> None:
    assert "-qmp unix:secrets/qmp.sock,server=on,wait=off" in words({"graceful_shutdown": True})
    assert "name=org.qemu.guest_agent.0" in words({"guest_agent": True})


def test_ports_are_led_to_the_guest() -> None:
    said = words({"port_map": {"ssh": 22}})
    assert "hostfwd=tcp:127.0.0.1:22000-:22,hostfwd=udp:127.0.0.1:22000-:22" in said
    assert "-device virtio-net,netdev=user.0" in said


def test_in_a_network_of_the_groups_own_the_port_inside_is_led_to_the_guest() -> None:
    inside = PortGiven(label="ssh", host_ip="192.0.2.1", host_port=22000, to=2222)
    assert forwards([{"ssh": 22}], [inside], is_namespaced=True)[0] == "hostfwd=tcp::2222-:22"


def test_a_port_without_a_label_or_out_of_range_is_refused() -> None:
    with pytest.raises(DriverError, match="it has: ssh"):
        forwards([{"web": 80}], [SSH])
    with pytest.raises(DriverError, match="1 to 65535"):
        forwards([{"ssh": 0}], [SSH])


def test_a_path_with_commas_stays_one_value() -> None:
    image = Image(path="/a/x,readonly=off,.img", format="raw")
    argv = command_line(request({}), emulator="qemu", image=image, plugin=plugin_config({}))
    assert "file=/a/x,,readonly=off,,.img,format=raw,if=ide" in argv


@pytest.mark.parametrize("machine", ["pc,dumpdtb=/etc/x", "pc accel=kvm", ""])
def test_a_machine_type_brings_no_further_properties(machine: str) -> None:
    config = TaskConfig(image_path="x", machine_type=machine)
    if machine:
        with pytest.raises(DriverError, match="machine_type"):
            machine_of(config)
    else:
        assert machine_of(config) == "type=pc,accel=tcg"


def test_unknown_accelerators_interfaces_and_little_memory_are_refused() -> None:
    with pytest.raises(DriverError, match="accelerator"):
        words({"accelerator": "kvm,x=y"})
    with pytest.raises(DriverError, match="drive_interface"):
        words({"drive_interface": "ide,snapshot=on"})
    with pytest.raises(DriverError, match="128 MB"):
        command_line(request({}, memory_mb=64), emulator="q", image=IMAGE, plugin=plugin_config({}))


@pytest.mark.parametrize("args", [["-smp", "2"], ["-nodefaults"], ["--cpu", "max"], ["-vga", "none", "-no-reboot"], []])
def test_harmless_flags_are_allowed_without_a_list(args: list[str]) -> None:
    check_args(args, None)


@pytest.mark.parametrize(
    "args",
    [
        ["-drive", "file=/etc/shadow"],
        ["--drive", "file=/etc/shadow"],
        ["-netdev", "user,guestfwd=tcp:1.2.3.4:1-cmd:sh"],
        ["-device", "vfio-pci,host=01:00.0"],
        ["/dev/sda"],
        ["-nodefaults", "/dev/sda"],
        ["-smp", "2", "/dev/sda"],
        ["-smp", "-hda", "/dev/sda"],
        ["-boot", "splash=/etc/shadow"],
        ["-k", "../../x"],
        [""],
    ],
)
def test_everything_that_reaches_the_host_is_refused_without_a_list(args: list[str]) -> None:
    with pytest.raises(DriverError, match="args"):
        check_args(args, None)


def test_the_operators_list_decides_alone() -> None:
    check_args(["-drive", "file=/srv/x"], ["-drive"])
    check_args(["--drive", "file=/srv/x"], ["-drive"])
    check_args(["/dev/sda"], ["*"])
    for args in (["-smp", "2"], ["-drive", "a", "/dev/sda"], ["-usb", "/dev/sda"]):
        with pytest.raises(DriverError, match="args"):
            check_args(args, ["-drive", "-usb"])
    with pytest.raises(DriverError, match="args_allowlist"):
        check_args(["-nodefaults"], [])


@pytest.mark.parametrize("emulator", ["sh", "/bin/sh", "local/qemu-system-x86_64", "qemu-system-x86_64 -x"])
def test_only_an_emulator_is_an_emulator(emulator: str) -> None:
    with pytest.raises(DriverError, match="emulators_allowlist"):
        emulator_of(TaskConfig(image_path="x", emulator=emulator), plugin_config({}))


def test_the_operators_list_of_emulators_decides() -> None:
    plugin = plugin_config({"emulators_allowlist": ["/opt/qemu"]})
    assert emulator_of(TaskConfig(image_path="x", emulator="/opt/qemu"), plugin) == "/opt/qemu"
    with pytest.raises(DriverError, match="allowed are /opt/qemu"):
        emulator_of(TaskConfig(image_path="x"), plugin)


def qcow2(backing: str = "", *, version: int = 3, features: int = 0) -> bytes:
    """The header of a qcow2 image that is laid over another."""
    name = backing.encode()
    offset = 104 if name else 0
    head = b"QFI\xfb" + version.to_bytes(4) + offset.to_bytes(8) + len(name).to_bytes(4)
    return head.ljust(72, b"\0") + features.to_bytes(8) + b"\0" * 24 + name + b"\0" * 400


class Disks:
    """An allocation with disk images, and files next to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.task = root / "alloc" / "vm"
        (self.task / "local").mkdir(parents=True)
        (root / "secret.img").write_bytes(b"secret")

    def put(self, name: str, content: bytes) -> str:
        """Write an image into the task's folder."""
        (self.task / "local" / name).write_bytes(content)
        return f"local/{name}"

    def find(self, asked: str, *image_paths: Path) -> Image:
        """What the driver makes of a path."""
        allowed = [str(each) for each in image_paths]
        return find_image(asked, task_dir=str(self.task), alloc_dir=str(self.root / "alloc"), image_paths=allowed)


@pytest.fixture
def disks(tmp_path: Path) -> Disks:
    return Disks(tmp_path)


def test_an_image_of_the_allocation_is_found_and_its_format_told(disks: Disks) -> None:
    assert disks.find(disks.put("disk.img", b"\x55\xaa" * 256)).format == "raw"
    assert disks.find(disks.put("disk.qcow2", qcow2())).format == "qcow2"
    assert disks.find(disks.put("disk.vhdx", b"vhdxfile" + b"\0" * 100)).format == "vhdx"
    vdi = b"<<< Oracle VM VirtualBox Disk Image >>>".ljust(64, b"\0") + b"\x7f\x10\xda\xbe"
    assert disks.find(disks.put("disk.vdi", vdi)).format == "vdi"


@pytest.mark.parametrize("asked", ["../../secret.img", "local/../../../secret.img", "/etc/passwd", "/"])
def test_an_image_outside_of_the_allocation_is_refused(disks: Disks, asked: str) -> None:
    with pytest.raises(DriverError, match="image_paths"):
        disks.find(asked)


def test_the_operator_may_allow_a_folder(disks: Disks) -> None:
    assert disks.find(str(disks.root / "secret.img"), disks.root).path.endswith("secret.img")


def test_a_link_out_of_the_allocation_is_refused(disks: Disks) -> None:
    (disks.task / "local" / "link.img").symlink_to(disks.root / "secret.img")
    with pytest.raises(DriverError, match="image_paths"):
        disks.find("local/link.img")


def test_what_is_no_file_is_refused(disks: Disks) -> None:
    os.mkfifo(disks.task / "local" / "fifo")
    for asked in ("local", "local/fifo"):
        with pytest.raises(DriverError, match="not a file"):
            disks.find(asked)
    with pytest.raises(DriverError, match="No such file"):
        disks.find("local/missing")
    with pytest.raises(DriverError, match="NUL"):
        disks.find("local/x\0y")


def test_an_image_may_be_laid_over_another_of_the_allocation(disks: Disks) -> None:
    disks.put("base.qcow2", qcow2())
    assert disks.find(disks.put("top.qcow2", qcow2("base.qcow2"))).format == "qcow2"


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "backing", ["/etc/passwd", "../../../secret.img", "json:{}", "nbd://x/y", "host_device:/dev/x"]
)
def test_an_image_laid_over_a_file_of_the_host_is_refused(disks: Disks, backing: str, version: int) -> None:
    with pytest.raises(DriverError):
        disks.find(disks.put("evil.qcow2", qcow2(backing, version=version)))


def test_a_chain_is_followed_to_its_end_and_a_circle_is_not(disks: Disks) -> None:
    disks.put("middle.qcow2", qcow2("/etc/passwd"))
    with pytest.raises(DriverError, match="image_paths"):
        disks.find(disks.put("top.qcow2", qcow2("middle.qcow2")))
    with pytest.raises(DriverError, match="more than 16"):
        disks.find(disks.put("circle.qcow2", qcow2("circle.qcow2")))


def test_images_that_name_other_files_in_ways_not_followed_are_refused(disks: Disks) -> None:
    with pytest.raises(DriverError, match="another file"):
        disks.find(disks.put("data.qcow2", qcow2(features=4)))
    for head in (b"KDMV", b"# Disk DescriptorFile", b"QED\0"):
        with pytest.raises(DriverError, match="qemu-img convert"):
            disks.find(disks.put("other.img", head + b"\0" * 200))


def test_an_emulator_gets_none_of_the_tasks_variables_and_is_never_the_tasks_own(
    disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = disks.root / "bin"
    folder.mkdir()
    (folder / "qemu-system-x86_64").write_text("#!/bin/sh\n")
    (folder / "qemu-system-x86_64").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    disks.put("disk.img", b"x")
    dirs = TaskDirs(
        alloc_dir=str(disks.root / "alloc"), shared_dir="/s", task_dir=str(disks.task), local_dir="/l",
        secrets_dir="/x", logs_dir="/y",
    )  # fmt: skip
    env = {"LD_PRELOAD": "/local/evil.so", "PATH": "/local", "NOMAD_TASK_NAME": "vm"}
    spec = process_spec(request({}, dirs=dirs, env=env), plugin_config({}), UserRules())
    assert spec.env == {"NOMAD_TASK_NAME": "vm", "PATH": str(folder)}
    assert (spec.argv[0], spec.search) == (str(folder / "qemu-system-x86_64"), ())
    assert spec.cgroup.memory_bytes == 0


def test_a_misspelt_option_is_told_at_registration() -> None:
    (problem,) = check_config(schema_of(TaskConfig), {"image_path": "x", "acelerator": "kvm"})
    assert problem.hint == 'did you mean "accelerator"?'
