"""Write the JSON schemas of the recipes, `python -m tools.make_schemas`: after every change of a config class."""

import argparse
import dataclasses
import json
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, NoDefault

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import EXTENDS
from ballcast.core.embedded import RECIPES
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.pretrain_config import PretrainRecipe

SCHEMAS = {"schema.json": Recipe, "pretrain.schema.json": PretrainRecipe, "feed.schema.json": FeedRecipe}


class Schema(GenerateJsonSchema):
    """Without a title for each key, which would repeat it, and with the default of every key that is no section."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def get_default_value(self, schema: Any) -> Any:
        default = schema["default_factory"]() if "default_factory" in schema else super().get_default_value(schema)
        return NoDefault if dataclasses.is_dataclass(default) else default

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made = super().dataclass_schema(schema)
        made.pop("title", None)
        return made


def json_schema(cls: type) -> dict[str, Any]:
    """The JSON schema of a config class, which editors use to complete and check YAML files."""
    return TypeAdapter(cls).json_schema(schema_generator=Schema)


def schema_text(cls: type) -> str:
    """Return the schema of a config class as the text of its file."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"ballcast {cls.__name__}"}
    schema |= json_schema(cls)
    base = {"type": "string", "description": "a recipe, or a file beside this one: its values where none are given"}
    schema["properties"] = {EXTENDS: base, **schema["properties"]}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    for name, cls in SCHEMAS.items():
        (RECIPES / name).write_text(schema_text(cls), encoding="utf-8")


if __name__ == "__main__":
    main()
