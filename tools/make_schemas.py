"""Write the JSON schemas of the recipes, `python -m tools.make_schemas`: after every change of a config class."""

import json

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import EXTENDS, json_schema
from ballcast.core.embedded import RECIPES
from ballcast.core.pretrain_config import PretrainRecipe

SCHEMAS = {"schema.json": Recipe, "pretrain.schema.json": PretrainRecipe}


def schema_text(cls: type) -> str:
    """Return the schema of a config class as the text of its file."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"ballcast {cls.__name__}"}
    schema |= json_schema(cls)
    base = {"type": "string", "description": "a recipe, or a file beside this one: its values where none are given"}
    schema["properties"] = {EXTENDS: base, **schema["properties"]}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, cls in SCHEMAS.items():
        (RECIPES / name).write_text(schema_text(cls), encoding="utf-8")
