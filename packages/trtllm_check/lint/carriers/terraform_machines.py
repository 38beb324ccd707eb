"""Scripts that Terraform hands to a machine at its first start: user_data, startup scripts."""

import re

from trtllm_check.lint.carriers.script import Carried, dedented
from trtllm_check.lint.shell.words import Word

SCRIPT = re.compile(
    r"^[ \t]*\"?(?:user_data|user_data_base64|custom_data|metadata_startup_script|startup[-_]script)\"?[ \t]*=[ \t]*"
    r"(?:base64encode\([ \t]*)?<<-?[ \t]*(?P<mark>\w+)[ \t]*\n(?P<inside>[ \t]*#![^\n]*sh\b[^\n]*\n.*?)"
    r"^[ \t]*(?P=mark)[ \t]*\)?[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
INTERPOLATION = re.compile(r"\$\{(?P<inside>[^{}\n]*)\}")
DIRECTIVE = re.compile(r"%\{[^{}\n]*\}")
ESCAPED = re.compile(r"\$(?=\$\{)")


def scripts(word: Word) -> Carried:
    """Each script, with what Terraform fills in as variables that nobody knows."""
    found = Carried()
    for match in SCRIPT.finditer(word.text) if "<<" in word.text else ():
        inside = word.part(*match.span("inside"))
        text = ESCAPED.sub(" ", inside.text)
        text = INTERPOLATION.sub(lambda one: "${" + re.sub(r"\W", "_", one["inside"]) + "}", text)
        text = DIRECTIVE.sub(lambda one: " " * len(one[0]), text)
        whole = Word(text, inside.line, inside.column, inside.places)
        found = found.with_(Carried(scripts=((dedented(whole), ""),)))
    return found
