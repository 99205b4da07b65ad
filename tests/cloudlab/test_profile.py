"""The profile asks CloudLab for what the user chose, and refuses what CloudLab cannot give."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from pyrdma import cloudlab
from pyrdma.errors import Error
from tests.cloudlab.portal import PROFILE, Context, document, run
from tests.errors import raises, unnamed

pytestmark = pytest.mark.filterwarnings("default:::geni")  # it was written for Python 2

SPACES = {
    "r": "http://www.geni.net/resources/rspec/3",
    "e": "http://www.protogeni.net/resources/rspec/ext/emulab/1",
}


def found(context: Context, path: str) -> list[Any]:
    """Return what an XPath finds in the request."""
    said = document(context).xpath(path, namespaces=SPACES)
    assert isinstance(said, list)
    return said


def test_the_default_is_a_pair_on_one_switch() -> None:
    asked = run()
    assert found(asked, "r:node/@client_id") == ["node-0", "node-1"]
    assert found(asked, "r:node/@exclusive") == ["true", "true"]
    assert found(asked, "r:node/r:hardware_type/@name") == ["xl170", "xl170"]
    assert found(asked, "r:node/r:interface/r:ip/@address") == ["10.10.1.1", "10.10.1.2"]
    [image] = set(found(asked, "r:node/r:sliver_type/r:disk_image/@name"))
    assert image.endswith("//UBUNTU22-64-STD")
    [lan] = found(asked, "r:link")
    assert lan.xpath("r:interface_ref/@client_id", namespaces=SPACES) == found(
        asked, "r:node/r:interface/@client_id"
    )
    assert found(asked, "r:link/r:property/@capacity") == ["25000000", "25000000"]
    assert found(asked, "r:link/e:interswitch/@allow") == ["false"]
    assert found(asked, "r:link/e:force_nobwshaping/@enabled") == ["true"]
    assert found(asked, "//r:execute") == []


def test_the_request_is_what_the_user_chose() -> None:
    image = "urn:publicid:IDN+emulab.net+image+emulab-ops//DEBIAN12-64-STD"
    asked = run(nodeCount=200, hardware="r650", image=image, sameSwitch=False, linkSpeed=40)
    assert len(set(found(asked, "r:node/@client_id"))) == 200
    assert len(set(found(asked, "r:node/r:interface/r:ip/@address"))) == 200
    assert found(asked, "r:node/r:interface/r:ip/@address")[-1] == "10.10.1.200"
    assert set(found(asked, "r:node/r:hardware_type/@name")) == {"r650"}
    assert set(found(asked, "r:node/r:sliver_type/r:disk_image/@name")) == {image}
    assert set(found(asked, "r:link/r:property/@capacity")) == {"40000000"}
    assert found(asked, "r:link/e:interswitch") == []


def test_a_single_node_has_no_lan() -> None:
    asked = run(nodeCount=1)
    assert found(asked, "r:node/@client_id") == ["node-0"]
    assert found(asked, "r:link") == found(asked, "r:node/r:interface") == []


def test_where_links_have_several_speeds_cloudlab_chooses() -> None:
    assert found(run(hardware="r320"), "r:link/r:property") == []
    assert set(found(run(hardware="r320", linkSpeed=56), "r:link/r:property/@capacity")) == {
        "56000000"
    }


@pytest.mark.parametrize(
    ("choices", "names", "values"),
    [
        ({"nodeCount": 0}, ["nodeCount"], [0, 200]),
        ({"nodeCount": 201}, ["nodeCount"], [201, 200]),
        ({"linkSpeed": -1}, ["linkSpeed", "hardware"], [-1, 25, "xl170"]),
        ({"linkSpeed": 26}, ["linkSpeed", "hardware"], [26, 25, "xl170"]),
        ({"linkSpeed": 101, "hardware": "r650"}, ["linkSpeed", "hardware"], [101, 100, "r650"]),
        ({"image": "UBUNTU22"}, ["image"], ["UBUNTU22", "urn:publicid:IDN+"]),
    ],
)
def test_what_cannot_be_had_is_named_beside_its_field(
    choices: dict[str, Any], names: list[str], values: list[object]
) -> None:
    refused = run(**choices)
    [error] = refused.errors
    assert refused.request is None
    assert error.names == names
    assert unnamed(error.message, *values) == []


def test_every_mistake_is_told_at_once() -> None:
    assert len(run(nodeCount=0, linkSpeed=500, image="x").errors) == 3


def test_hardware_without_an_rdma_nic_is_not_offered() -> None:
    assert run(hardware="m400").request is None


def test_a_request_is_no_manifest() -> None:
    content = run().request
    assert content is not None
    with raises(Error, "node-0", "node-1"):
        cloudlab.read_manifest(content.toXMLString(), "ada")


def test_python_2_could_read_it() -> None:
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.Nonlocal, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(PROFILE.read_text())):
        assert not isinstance(node, newer), ast.dump(node)
        if isinstance(node, (ast.arg, ast.FunctionDef)):
            assert getattr(node, "annotation", None) is getattr(node, "returns", None) is None
    assert PROFILE.read_bytes().isascii()
