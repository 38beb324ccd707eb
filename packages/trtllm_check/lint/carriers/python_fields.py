"""Objects of Python that are handed over field by field: ``**asdict(settings)``, and what a function returns."""

import ast
from typing import NamedTuple

from trtllm_check.lint.carriers.python_values import Values

TO_DICTIONARY = ("asdict", "dataclasses.asdict", "attr.asdict", "attrs.asdict", "vars")
METHODS = ("model_dump", "dict", "_asdict", "to_dict")
NAMESPACES = ("SimpleNamespace", "types.SimpleNamespace", "argparse.Namespace", "Namespace")
MADE_BY = ("Field", "field", "pydantic.Field", "dataclasses.field")
DATA_BASES = ("BaseModel", "BaseSettings", "NamedTuple", "pydantic.BaseModel", "pydantic_settings.BaseSettings")
LEFT_OUT = ("exclude", "include", "exclude_unset", "exclude_defaults", "by_alias")
DEEPEST = 4


class Field(NamedTuple):
    """``value`` is ``at`` where it has no default."""

    name: str
    at: ast.expr | ast.keyword
    value: ast.expr


class Fields(NamedTuple):
    """``is_open``: there may be more, or fewer."""

    fields: tuple[Field, ...]
    is_open: bool


def fields_of(node: ast.expr, names: Values) -> Fields | None:
    """The fields of the object that ``node`` makes a dictionary of; None for what is no such thing."""
    held, is_open, without_none = _handed(node)
    if held is None:
        return None
    made = held if isinstance(held, ast.Call) else names.known(held)
    if not isinstance(made, ast.Call) or made.args or any(one.arg is None for one in made.keywords):
        return None
    given = {str(one.arg): Field(str(one.arg), one, one.value) for one in made.keywords}
    called = ast.unparse(made.func)
    if called in NAMESPACES:
        return Fields(tuple(given.values()), is_open)
    known = _of_class(called, names, 0)
    if known is None:
        return None
    found = [given.get(one.name, one) for one in known]
    if without_none:
        found = [one for one in found if not (isinstance(one.value, ast.Constant) and one.value.value is None)]
    return Fields(tuple(found), is_open)


def _handed(node: ast.expr) -> tuple[ast.expr | None, bool, bool]:
    """The object behind ``asdict(x)``, ``x.model_dump()`` and ``x.__dict__``; whether fields or None are left out."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value, False, False
    if not isinstance(node, ast.Call):
        return None, False, False
    options = {one.arg for one in node.keywords}
    is_open, without_none = bool(options & set(LEFT_OUT)), "exclude_none" in options
    if ast.unparse(node.func) in TO_DICTIONARY and len(node.args) == 1:
        return node.args[0], is_open, without_none
    if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and not node.args:
        return node.func.value, is_open, without_none
    return None, False, False


def _of_class(name: str, names: Values, depth: int) -> list[Field] | None:
    """The annotated fields of a class of data that the text defines once, those of its base first."""
    body = names.bodies.get(name)
    if body is None or names.defined.get(name) != 1 or depth > DEEPEST or not _is_data(body, names):
        return None
    found: dict[str, Field] = {}
    for base in map(ast.unparse, body.bases):
        found |= {one.name: one for one in _of_class(base, names, depth + 1) or ()}
    for one in body.body:
        is_field = isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        if not is_field or not isinstance(one, ast.AnnAssign) or not isinstance(one.target, ast.Name):
            continue
        field = one.target.id
        if not field.startswith("_") and field != "model_config" and "ClassVar" not in ast.unparse(one.annotation):
            found[field] = Field(field, one.target, _default(one.value) or one.target)
    return list(found.values())


def _is_data(body: ast.ClassDef, names: Values) -> bool:
    """True for a dataclass and a model of pydantic, and for what is made of one."""
    decorators = (ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in body.decorator_list)
    if any(one.rpartition(".")[2] in ("dataclass", "define", "frozen") for one in decorators):
        return True
    bases = [ast.unparse(one) for one in body.bases]
    return any(one in DATA_BASES or (one in names.bodies and _is_data(names.bodies[one], names)) for one in bases)


def _default(value: ast.expr | None) -> ast.expr | None:
    """The default, also of ``Field(8192, ge=1)``."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in MADE_BY:
        named = [one.value for one in value.keywords if one.arg == "default"]
        return value.args[0] if value.args else named[0] if named else None
    return value


def returned(node: ast.Call, names: Values) -> ast.expr | None:
    """What a function of the text returns, where one place alone defines it and it returns one thing."""
    func = node.func
    of_self = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id in ("self", "cls")
    name = func.attr if of_self and isinstance(func, ast.Attribute) else getattr(func, "id", "")
    made = names.functions.get(name)
    if made is None or names.defined.get(name) != 1 or (made.decorator_list and not of_self):
        return None
    inner = {
        id(one)
        for held in ast.walk(made)
        if held is not made and isinstance(held, ast.FunctionDef | ast.Lambda)
        for one in ast.walk(held)
    }
    found = [one for one in ast.walk(made) if isinstance(one, ast.Return) and id(one) not in inner]
    return found[0].value if len(found) == 1 else None
