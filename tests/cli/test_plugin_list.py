"""`yurt plugin list`: the parts of each plugin, by the fields of the API's answer."""

from yurt.cli.commands.plugin import PARTS
from yurt.plugins.manager import MadePlugin
from yurt.sdk.value import wire_name


def test_the_list_has_a_label_for_the_field_of_every_kind_of_part() -> None:
    assert set(PARTS) == {wire_name(kind) for kind in MadePlugin._fields}
