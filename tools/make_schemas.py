"""Write the JSON schemas of the recipes, `python -m tools.make_schemas`: after every change of a config class."""

import json

from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import json_schema
from ballcast.core.hub import RECIPES
from ballcast.core.pretrain_config import PretrainConfig

SCHEMAS = {"schema.json": Recipe, "pretrain.schema.json": PretrainConfig}


def schema_text(cls: type) -> str:
    """Return the schema of a config class as the text of its file."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": f"ballcast {cls.__name__}"}
    return json.dumps(schema | json_schema(cls), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, cls in SCHEMAS.items():
        (RECIPES / name).write_text(schema_text(cls), encoding="utf-8")
