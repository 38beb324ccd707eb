"""One Python package in one release: its modules, their names, the signatures of what it defines."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from benchmarks.checker.python_sources import ClassFacts, ModuleFacts, Signature, Tree, module_facts, walk_modules

MOST_PLACES = 8  # of those that a table names
MANY = 12  # so many more that nobody gives them all by place


class Modules(Mapping[str, ModuleFacts]):
    """The modules of a release, each read when somebody asks for it."""

    def __init__(self, sources: Mapping[str, tuple[str, bytes]]) -> None:
        self.sources = sources

    def __getitem__(self, name: str) -> ModuleFacts:
        key, source = self.sources[name]
        return module_facts(source, key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


class Package:
    """One package in one release."""

    def __init__(self, tree: Tree) -> None:
        self.modules = Modules({name: (key, tree[key]) for name, _, key in walk_modules(tree)})
        self.packages: set[str] = set()
        for name, is_package, _ in walk_modules(tree):
            if is_package:
                self.packages.add(name)
            parts = name.split(".")
            self.packages |= {".".join(parts[:end]) for end in range(1, len(parts))}
        self.known = frozenset(self.modules) | self.packages
        self.children: dict[str, set[str]] = defaultdict(set)
        for name in self.known:
            self.children[name.rpartition(".")[0]].add(name.rpartition(".")[2])

    def names(self, module: str, seen: frozenset[str] = frozenset()) -> tuple[set[str], set[str], bool]:
        """Names that belong to the module, names that it took from elsewhere, and whether it may have others."""
        facts = self.modules.get(module)
        own = set(self.children.get(module, ()))
        if facts is None:
            return own, set(), module not in self.packages
        root = module.partition(".")[0]
        inside = {name for name, origin in facts.taken.items() if origin.partition(".")[0] == root}
        others, is_open = set(facts.taken) - inside, facts.is_open
        own |= facts.own
        if module in self.packages:
            own |= inside
        else:
            others |= inside
        for star in facts.stars:
            if star in self.known and star not in seen:
                theirs, too, more = self.names(star, seen | {module})
                own, others, is_open = own | theirs, others | too, is_open or more
            else:
                is_open = True
        return own, others - own, is_open

    def signature(self, dotted: str) -> Signature | None:
        """The keywords of a function, of a method, or of a class by its constructor or its fields."""
        module, name = self._split(dotted)
        facts = self.modules.get(module)
        if facts is None:
            return None
        owner, _, method = name.partition(".")
        if method:
            return self._method(module, owner, method)
        if owner in facts.functions:
            return facts.functions[owner]
        return self._constructor(module, owner)

    def joined(self, places: list[str]) -> Signature | None:
        """The keywords of a call that hands what it does not take to the next of the places, and so on."""
        found = [one for place in places if (one := self.signature(place))]
        if not found or len(found) < len(places):
            return None
        taken: frozenset[str] = frozenset()
        for one in found:
            taken |= one.keywords
            if not one.is_open:
                return found[0]._replace(keywords=taken, is_open=False)
        return found[0]._replace(keywords=taken, is_open=True)

    def members(self, dotted: str) -> set[str] | None:
        """The public methods of a class, with those of its bases; None where a base is not known."""
        module, name = self._split(dotted)
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        own = {one for one in (*facts.methods, *facts.fields) if not one.startswith("_")}
        for base in facts.bases:
            if base not in ("object", "ABC", "EngineClient"):
                inherited = self.members(f"{module}.{base}")
                if inherited is None:
                    return None
                own |= inherited
        return own

    def _split(self, dotted: str) -> tuple[str, str]:
        parts = dotted.split(".")
        end = max((end for end in range(1, len(parts)) if ".".join(parts[:end]) in self.known), default=0)
        return ".".join(parts[:end]), ".".join(parts[end:])

    def _class(self, module: str, name: str, depth: int = 0) -> tuple[str, ClassFacts] | None:
        """Where it is defined, and what it holds."""
        facts = self.modules.get(module)
        if facts is None or depth > 5:
            return None
        if name in facts.classes:
            return module, facts.classes[name]
        origin = facts.taken.get(name, "")
        if not origin:
            return None
        source, _, there = origin.rpartition(".")
        return self._class(source, there, depth + 1)

    def _method(self, module: str, name: str, method: str) -> Signature | None:
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        if method in facts.methods:
            return facts.methods[method]
        return next((one for base in facts.bases if (one := self._method(module, base, method))), None)

    def _constructor(self, module: str, name: str) -> Signature | None:
        found = self._class(module, name)
        if found is None:
            return None
        module, facts = found
        for maker in ("__init__", "__new__"):
            if maker in facts.methods:
                return facts.methods[maker]
        fields: dict[str, bool] = {}
        is_open, is_record, by_name = False, facts.is_record, facts.by_name
        for base in facts.bases:
            inherited = self._constructor(module, base.partition("[")[0])
            if inherited is not None:
                every = (*inherited.order, *sorted(inherited.keywords - set(inherited.order)))
                fields |= {one: one not in inherited.required for one in every}
                is_open = is_open or inherited.is_open
                is_record = is_record or bool(inherited.required)
                by_name = by_name or (bool(inherited.keywords) and not inherited.order)
        fields |= facts.fields
        if not is_record:
            return Signature(frozenset(fields), is_open, is_variadic=True)
        required = frozenset(one for one, has_default in fields.items() if not has_default)
        return Signature(frozenset(fields), is_open, () if by_name else tuple(fields), required)


def form_of(signature: Signature) -> str:
    """``name! path! base +3 ; request_id!``: what is taken by place, ``!`` where required, and required by name.

    ``+3``: three more places; ``*``: many more, or any number of them.
    """
    required = signature.required
    places = [f"{one}!" if one in required else one for one in signature.order[:MOST_PLACES]]
    more = len(signature.order) - MOST_PLACES
    if signature.is_variadic or more > MANY:
        places.append("*")
    elif more > 0:
        places.append(f"+{more}")
    named = sorted(required - set(signature.order[:MOST_PLACES]))
    return " ".join([*places, *([";", *named] if named else [])])
