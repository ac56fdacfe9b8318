"""Artifacts from the depot of a site: `depot::tools/hello.tar.gz` is a file below a folder that all nodes mount."""

import shutil
from pathlib import Path

from yurt.sdk.artifacts import ArtifactGetter, ArtifactRequest
from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.plugin import PluginSkipped, plugin_function


def download(request: ArtifactRequest) -> None:
    depot = Path(request.config["folder"]).resolve()
    source = (depot / request.address).resolve()
    if not source.is_relative_to(depot):
        raise Invalid(f"{request.address} lies outside of the depot")
    try:
        shutil.copyfile(source, request.target)
    except FileNotFoundError:
        raise Invalid(f"the depot has no file {request.address}") from None
    except OSError as error:
        raise RecoverableError(f"the depot cannot be read: {error}") from None


@plugin_function
def yurt_artifact_getters(context: PluginContext) -> list[ArtifactGetter]:
    folder = context.config.get("folder", "")
    if not folder:
        raise PluginSkipped('no folder is named: plugin "depot" { config { folder = "/srv/depot" } }')
    function = f"{__name__}:download"
    return [ArtifactGetter(name="depot", function=function, config={"folder": folder})]
