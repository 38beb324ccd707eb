"""How a document comes to be: each text is told by its kind to whom reads it, and what they find is put together."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from trtllm_check.lint import dotenv
from trtllm_check.lint.assembly import assembled
from trtllm_check.lint.carriers import CARRIERS, carried
from trtllm_check.lint.carriers.aws_cli import cli_call, cli_variables
from trtllm_check.lint.carriers.python_code import LLM_OPTIONS
from trtllm_check.lint.carriers.script import dedented
from trtllm_check.lint.carriers.shared_imports import imported, with_imports
from trtllm_check.lint.carriers.systemd import is_unit
from trtllm_check.lint.carriers.windows import shell_name
from trtllm_check.lint.document import CONFIG, ConfigFile, Document, PropertiesFile, VariableList
from trtllm_check.lint.echoed_files import echoed_files
from trtllm_check.lint.engine_json import engine_call, is_config
from trtllm_check.lint.facts import config_facts
from trtllm_check.lint.file_cells import OF_SETTINGS, file_cells
from trtllm_check.lint.handed_texts import handed_texts
from trtllm_check.lint.json_pieces import pieces, told_pieces
from trtllm_check.lint.kinds import (
    Kind,
    is_called_a_shell,
    kind_of_fence,
    kind_of_name,
    kind_of_text,
    without_python,
)
from trtllm_check.lint.ours import is_ours
from trtllm_check.lint.parts import Parts
from trtllm_check.lint.passages import (
    Lines,
    is_shell_with_manifests,
    manifest_runs,
    numbers_of,
    option_runs,
    posts,
    properties_blocks,
    python_behind_words,
    python_pieces,
    variable_lists,
    without,
)
from trtllm_check.lint.pbtxt_pages import config_runs, from_the_first_whole_field, knows_a_field, model_of, piece_name
from trtllm_check.lint.programs import PYTHON, TOOL_NAMES
from trtllm_check.lint.property_texts import is_mostly_settings, is_properties
from trtllm_check.lint.shell import ShellCommand, Word, read_commands, read_inside
from trtllm_check.lint.shell.pasted import DOCKERS, fences, is_shell
from trtllm_check.lint.shell.words import as_written, line_numbers, whole_text
from trtllm_check.lint.unread import heredoc_lines
from trtllm_check.lint.written_requests import (
    WrittenRequest,
    http_messages,
    is_request,
    json_object,
)
from trtllm_check.serving_properties import ENVIRONMENT_NAMES, PREFIXES

SERVING_PROPERTIES = "serving.properties"
STARTED = re.compile(rf"\"(?:\S*/)?(?:{TOOL_NAMES})(?:\"|\s)")
LAUNCHED = re.compile(
    r"\"(?:[^\"\s]*/)?vllm\"|\"vllm(?: serve |\.entrypoints\.)"
)  # in an editor's or a launcher's JSON
MAGIC = re.compile(r"\A%%writefile\b.*")
DEEPEST = 4  # a script in YAML in a cell of a notebook
MESSAGE = re.compile(  # the last: what a program in Python printed
    r"^\s*(?:message|enum|service)\s+\w+\s*\{|^\s*syntax\s*=|^[ \t]*\w+[ ]+\w+:[ ]+(?:True|False)[ \r]*$", re.MULTILINE
)
OF_WHOLE_MANIFESTS = ("manifest-together", "manifest-incomplete")


class Builder(Parts):
    """Takes texts in, each with its kind; :meth:`document` is all of them."""

    def add(self, text: str, kind: Kind, *, file: str = "", word: Word | None = None, name: str = "") -> None:
        """One text; ``word`` is its place where it is a part of another, ``name`` how it is called there."""
        line = word.line if word else 1
        if kind == "request" and kind_of_text(text) in ("environment", "yaml"):
            kind = kind_of_text(text)  # a container's variables, a manifest or a template as JSON
        fields = json_object(text) if kind == "request" else None
        if is_config(fields):
            kind = "config.json"
        if (
            kind == "request"
            and fields is not None
            and not is_request(fields)
            and (STARTED.search(text) or LAUNCHED.search(text))
        ):
            kind = "yaml"  # a definition of ECS, tasks of an editor: what starts a program as JSON
        if kind == "request" and fields is None and self.add_objects(text, file, word, name):
            return
        if kind == "serving.properties" and word is None and not is_mostly_settings(text):
            kind = "shell"  # a report that holds one
        if kind == "yaml" and word is None and is_shell_with_manifests(text):
            kind = "shell"
        if word is None:
            self.sources.append((file, text))
            self.ours = self.ours or is_ours(text, kind)
        if kind in ("python", "shell") and "%%" in text:
            text, word = self.add_cells(text, file, word)
        if kind == "config.pbtxt" and MESSAGE.search(text):
            pass  # messages are defined or printed here, and no configuration is written
        elif kind == "config.pbtxt" and word is not None and not knows_a_field(text):
            pass  # another message of protobuf's text format
        elif kind == "config.pbtxt":
            path = name if word else file or name
            is_file = PurePosixPath(path).name == CONFIG or (self.is_named and word is None)
            text = text if is_file else from_the_first_whole_field(text)
            self.configs.append(ConfigFile(file, text, model_of(path, text), line, is_file=is_file))
        elif kind == "serving.properties":
            text = MAGIC.sub("", text)  # of the cell that wrote it; its line stays
            if is_properties(text) or PurePosixPath(name or file).name == SERVING_PROPERTIES:
                self.properties.append(PropertiesFile(file, text, line, line_numbers(word, text)))
        elif kind == "environment":
            self.dotenv |= dotenv.of_file(text) if PurePosixPath(file or name).name == ".env" else {}
            self.add_environment(word or whole_text(text))
        elif kind == "request" and (call := engine_call(fields, word or whole_text(text), file, name)):
            self.of_triton.append(call)
        elif kind == "request":
            self.requests.append(WrittenRequest("", fields, word or whole_text(text), file=file))
        elif kind == "config.json":
            self.json_configs.append(ConfigFile(file, text, model_of(file or name, ""), line))
            self.file_facts.append(config_facts(text))
        elif kind in CARRIERS:
            if kind == "yaml":
                places = word.places if word is not None and name == LLM_OPTIONS else ()
                self.yaml.append(ConfigFile(file or name, text, name or file, line, places))
            whole = word or whole_text(text)
            self.add_carried(kind, text, with_imports(whole, imported(text)) if kind == "python" else whole, file)
        else:
            self.add_shell(text, file, word)

    def add_cells(self, text: str, file: str, word: Word | None) -> tuple[str, Word | None]:
        """Files that cells of a notebook write, pasted as text; the text without them."""
        cells, rest = file_cells(word or whole_text(text))
        for cell in cells:
            self.add(cell.text.text, cell.kind, file=file, word=cell.text, name=cell.name)
        return (rest.text, rest if word else None) if cells else (text, word)

    def add_objects(self, text: str, file: str, word: Word | None, name: str) -> bool:
        """The objects of JSON that is no single one; False where there are none."""
        found = list(pieces(text))
        whole = word or whole_text(text if found else "")
        if found and word is None:
            self.sources.append((file, text))
        for one in found:
            part = whole.part(one.start, one.start + len(one.text))
            self.add(one.text, "request", file=file, word=as_written(part, one.text), name=name)
        return bool(found)

    def add_carried(self, kind: Kind, text: str, whole: Word, file: str, around: str = "") -> None:
        """A text of another language: its scripts, the files in it, its images. ``around``: the image that runs it."""
        if self.depth > DEEPEST:
            return
        self.depth += 1
        found = carried(kind, whole)
        if kind == "windows":
            self.windows = shell_name(text)
        self.images += found.images
        self.calls += [one._replace(file=file) for one in found.calls]
        self.workloads += [one._replace(file=file) for one in found.workloads]
        self.aws_calls += [one._replace(file=file) for one in found.aws_calls]
        self.faults += [one._replace(file=file) for one in found.faults]
        self.names += [one._replace(file=file) for one in found.names]
        self.tensors += [one._replace(file=file) for one in found.tensors]
        outside = dotenv.reaches(text, self.dotenv)
        for script, image in found.scripts:
            inner = read_inside(script, file, is_built=True, env=outside)
            self.add_commands([one._replace(image=image or around) for one in inner])
        for name, word in found.texts:
            self.add(word.text, kind_of_name(name) or kind_of_text(word.text), file=file, word=word, name=name)
        for sent in found.requests:
            known = {(one.file, one.place.line) for one in self.requests}
            if (file, sent.body.line) not in known:
                request = WrittenRequest(sent.url, sent.fields, sent.body, "POST", file, sent.address)
                self.requests.append(request)
        if kind == "python" and not found.requests and not whole.places[:1] > ((1, 1),):
            self.add_posts(text, file)
        self.depth -= 1

    def add_commands(self, commands: Sequence[ShellCommand]) -> None:
        self.commands += commands
        for command in commands:
            self.add_parts(command)

    def add_parts(self, command: ShellCommand) -> None:
        """What a command writes, calls and sets."""
        self.add_written(command)
        if call := cli_call(command):
            self.aws_calls.append(call._replace(file=command.file))
            for word in cli_variables(command):
                self.add_variable(word)
        if command.words[:1] and command.words[0].text != "export":
            return
        for word in command.assignments or command.words[1:]:
            self.add_variable(word)

    def add_shell(self, text: str, file: str, place: Word | None = None) -> None:
        if place is not None:
            self.add_commands(read_inside(place, file))
            return
        pieces = python_pieces(text)
        commands = read_commands(without_python(without(text, pieces)), file)
        read = self.add_embedded(text, commands, file) | numbers_of(pieces)
        for piece in pieces:
            self.add(piece.text, "python", file=file, word=whole_text(piece.text, piece.first))
        self.texts.append((text, commands, read, file))
        self.add_commands(commands)
        names = imported(text)
        self.dotenv |= dotenv.of_page(text)
        for block in fences(text):
            inside = text[block.start : block.end]
            is_other = is_called_a_shell(block.language, inside)
            is_other |= is_unit(inside)
            is_other |= block.language in DOCKERS and kind_of_text(inside) == "yaml"
            if is_shell(block.language, inside) and block.language not in ("", "text") and not is_other:
                continue
            kind = "systemd" if is_unit(inside) else kind_of_fence(block.language, inside)
            line = text.count("\n", 0, block.start) + 1
            for run in option_runs(inside) if kind == "shell" else ():
                whole = dedented(whole_text(run.text, line + run.first - 1))
                read |= set(range(whole.line, whole.line + run.text.count("\n") + 1))
                self.add(whole.text, "yaml", file=file, word=whole)
            if kind != "shell":
                read |= set(range(line, line + inside.count("\n") + 1))
                name = piece_name(text, inside, block.start) if kind == "config.pbtxt" else ""
                whole = dedented(whole_text(inside, line))
                whole = with_imports(whole, names) if kind == "python" else whole
                known = len(self.faults)
                self.add(whole.text, kind, file=file, word=whole, name=name)
                if block.end == len(text):  # the paste ends within it, and what it lacks may stand behind
                    self.faults[known:] = [one for one in self.faults[known:] if one.rule not in OF_WHOLE_MANIFESTS]

    def add_embedded(self, text: str, commands: Sequence[ShellCommand], file: str) -> set[int]:
        """What is no command and in no fence; the lines of it."""
        taken = heredoc_lines(commands)
        for command in commands:  # arguments on lines of their own may look like settings
            taken |= set(range(command.line, command.end_line + 1)) if command.end_line > command.line else set()
        for block in fences(text):
            first = text.count("\n", 0, block.start) + 1
            taken |= set(range(first, first + text.count("\n", block.start, block.end) + 1))
        free = [lines for lines in properties_blocks(text) if lines.first not in taken]
        self.properties += [PropertiesFile(file, lines.text, lines.first) for lines in free]
        named = [lines for lines in variable_lists(text) if lines.first not in taken]
        self.variable_lists += [VariableList(tuple(one.text.split("\n")), one.first, file) for one in named]
        runs = list(config_runs(text, taken))
        for lines in runs:
            name = piece_name(text, lines.text, text.find(lines.text))
            self.add(lines.text, "config.pbtxt", file=file, word=whole_text(lines.text, lines.first), name=name)
        messages = self.add_messages(text, file)
        behind = python_behind_words(text) if not python_pieces(text) else None
        if behind is not None and behind.first not in taken:
            self.add(behind.text, "python", file=file, word=whole_text(behind.text, behind.first))
            messages |= numbers_of([behind])
        manifests = manifest_runs(text, taken)
        for lines in manifests:
            self.add(lines.text, "yaml", file=file, word=whole_text(lines.text, lines.first))
        messages |= numbers_of(manifests)
        objects: list[Lines] = []
        for one in told_pieces(
            text, taken | messages | numbers_of([*free, *named, *runs]), ENVIRONMENT_NAMES, tuple(PREFIXES)
        ):
            first = text.count("\n", 0, one.start) + 1
            objects.append(Lines(first, first + one.text.count("\n"), one.text))
            place = whole_text(text).part(one.start, one.start + len(one.text))
            self.add(one.text, "request", file=file, word=as_written(place, one.text))
        return self.add_posts(text, file) | messages | numbers_of([*free, *named, *runs, *objects])

    def add_messages(self, text: str, file: str) -> set[int]:
        """Requests as they go over HTTP; the lines of them."""
        lines: set[int] = set()
        found = list(http_messages(text))
        whole = whole_text(text if found else "")
        for one in found:
            body, address = whole.part(*one.body_span), whole.part(*one.url_span)
            self.requests.append(WrittenRequest(one.url, one.fields, body, one.method, file, address))
            lines |= set(range(address.line, body.places[-1][0] + 1))
        return lines

    def add_posts(self, text: str, file: str) -> set[int]:
        """Requests of Python code; the lines of them."""
        lines: set[int] = set()
        found = list(posts(text))
        whole = whole_text(text if found else "")
        for post in found:
            body, address = whole.part(*post.body_span), whole.part(post.url_span[0] + 1, post.url_span[1] - 1)
            self.requests.append(WrittenRequest(post.url, post.fields, body, "POST", file, address))
            lines |= {line for line, _ in (*body.places, *address.places)}
        return lines

    def add_written(self, command: ShellCommand) -> None:
        """``cat > serving.properties <<EOF``, ``python - <<EOF`` and ``python -c "..."``."""
        bodies = [redirect.target for redirect in command.redirects if redirect.operator == "<<"]
        if command.words and PYTHON.fullmatch(command.words[0].text):
            self.add_program(command, bodies)
        for one in handed_texts(command):
            self.add(one.text.text, one.kind, file=command.file, word=one.text, name=one.name)

    def add_inside(self, every: Sequence[ShellCommand]) -> None:
        """What the scripts in commands write, call and set, and all files that are written line by line."""
        own = {id(command) for command in self.commands}
        for command in every:
            if id(command) not in own:
                self.add_parts(command)
        for one in echoed_files(every):  # echo "engine=MPI" >> serving.properties
            kind = kind_of_name(one.name)
            if kind in (*OF_SETTINGS, "config.pbtxt"):
                self.add(one.text.text, kind, file=one.file, word=one.text, name=one.name)

    def add_program(self, command: ShellCommand, bodies: Sequence[Word]) -> None:
        """What Python is given to run: the names in it, and its calls."""
        words = command.words[1:]
        if words[:1] and words[0].text == "-c":
            bodies = words[1:2]
        elif words[:1] and words[0].text != "-":
            return
        for word in bodies:
            self.add_carried("python", word.text, word, command.file, command.image)

    def document(self) -> Document:
        return assembled(self, self.add_inside)
