"""openapi.py - the centre's own description of its API, walked: routes, right values, and is an answer as described?"""
import json


class Route:
    def __init__(self, doc, path, method, operation):
        self.doc, self.path, self.method = doc, path, method.upper()
        self.name = operation["operationId"]
        self.security = bool(operation.get("security"))
        self.responses = operation["responses"]
        parameters = operation.get("parameters", [])
        self.path_parameters = [p for p in parameters if p["in"] == "path"]
        self.query = [p for p in parameters if p["in"] == "query"]
        self.headers = [p for p in parameters if p["in"] == "header"]
        content = operation.get("requestBody", {}).get("content", {})
        self.content_type, media = next(iter(content.items()), (None, {}))
        self.body = media.get("schema")
        self.required = operation.get("requestBody", {}).get("required", False)

    def __repr__(self):
        return f"{self.method} {self.path}"

    @property
    def success(self):
        (status,) = [int(s) for s in self.responses if s[0] in "23"]
        return status


def routes(doc):
    found = [Route(doc, path, method, operation) for path, item in doc["paths"].items() for method, operation in item.items()]
    # what ends rows comes last
    return sorted(found, key=lambda r: (r.method == "DELETE" or r.path.endswith("cancel"), r.path, r.method))


def resolve(doc, schema):
    """Without $ref and with allOf folded in."""
    while "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        kind = schema["$ref"].split("/")[2]
        schema = doc["components"][kind][name]
    if "allOf" in schema:
        folded = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema["allOf"]:
            folded = {**resolve(doc, part), **folded}
        return folded
    return schema


def reference(schema):
    """The name of the schema referred to, or None."""
    for part in (schema, *schema.get("allOf", [])):
        if "$ref" in part:
            return part["$ref"].rsplit("/", 1)[1]
    return None


FORMATS = {"date-time": "2026-01-02T03:04:05", "uuid": "123e4567-e89b-12d3-a456-426614174000", "uri": "rsync://lab.example/x", "path": "x/y"}


def example(doc, schema, known, owner="", name=""):
    """A right value: known ones by "Schema.field" or "field", the rest made up from the description."""
    for key in (f"{owner}.{name}", name):
        if key in known:
            return known[key]
    owner = reference(schema) or owner
    schema = resolve(doc, schema)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        if "properties" in schema:
            return {k: example(doc, v, known, owner, k) for k, v in schema["properties"].items()}
        more = schema.get("additionalProperties")
        return {"7": example(doc, more, known, owner)} if isinstance(more, dict) else {"free": [1, {"x": None}]}
    if kind == "array":
        return [example(doc, schema["items"], known, owner)]
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1))
    if kind == "boolean":
        return True
    return FORMATS.get(schema.get("format"), "x")


def violation(doc, schema, value, where="answer"):
    """What is not as described, as text; None if all is."""
    schema = resolve(doc, schema)
    if value is None:
        return None if schema.get("nullable") or not schema.get("type") else f"{where} is null"
    if "anyOf" in schema:
        return None if any(violation(doc, s, value) is None for s in schema["anyOf"]) else f"{where} is none of the forms"
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"{where} is no {kind}: {json.dumps(value)[:80]}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of the names: {value!r}"
    if kind == "array":
        return next(filter(None, (violation(doc, schema["items"], v, f"{where}[{i}]") for i, v in enumerate(value))), None)
    if kind == "object":
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", not schema.get("properties"))
        for name in schema.get("required", []):
            if name not in value:
                return f"{where}.{name} is absent"
        for name, v in value.items():
            if name in properties:
                bad = violation(doc, properties[name], v, f"{where}.{name}")
            elif isinstance(more, dict):
                bad = violation(doc, more, v, f"{where}.{name}")
            else:
                bad = None if more else f"{where}.{name} is not described"
            if bad:
                return bad
    return None
