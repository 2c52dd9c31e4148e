"""What the inference of a row depends on, as text: rows of equal signature treat dtypes, layouts and numbers alike.

A row's text is taken apart; left out is what says values only: the bodies' arithmetic, `let`s that no condition asks for,
`domain`, `tol`, `doc`, and the messages of checks.  Arguments go by position.  Everything else is kept, clauses that are
unknown here included: a new kind of clause makes more groups, never a wrong one.  Of a body remains which arguments it
uses, which of them unrounded (`compute(x)`), and which branch before it has the same body.

`Groups` puts operators of one form and signature together, and names one of them that is tested in every combination.
test_groups.py holds the groups against Kiln's own inference.
"""
import re

CLAUSES = ("when", "check", "let", "static", "ignore", "domain", "tol", "doc", "over", "state", "step", "block", "merge",
           "finish", "host", "out", "window", "into", "call")
VALUES_ONLY = ("domain", "tol", "doc")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|\d[\w.]*(?:(?<=[eE])[+-]\d+)?|->|[=!<>]=|<<|>>|\*\*|//|\S')


def tokens(text):
    return TOKEN.findall(text)


def without_comment(line):
    return re.match(r'(?:"(?:[^"\\]|\\.)*"|[^"#])*', line).group()


def clauses(row):
    """The head, then (word, tokens) of each clause, in order.  An expression may go on over lines."""
    found = []
    for line in map(without_comment, row.splitlines()):
        word = (line.split() or [""])[0]
        if found and word in CLAUSES:
            found.append((word, tokens(line)[1:]))
        elif found:
            found[-1][1].extend(tokens(line))
        elif word:
            found.append(("head", tokens(line)))
    return found


def split_at(words, mark):
    """Before and after the first `mark`; what is after is None where there is none."""
    return (words[:words.index(mark)], words[words.index(mark) + 1:]) if mark in words else (words, None)


def closing(words, at):
    """Where the bracket that opens at `at` is closed."""
    depth = 0
    for k in range(at, len(words)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(words[k], 0)
        if depth == 0:
            return k
    raise ValueError("a bracket is not closed")


def schema_of(head):
    """(names of the arguments, their types and defaults, results, the rest of the head)."""
    start = head.index("(")
    end = closing(head, start)
    names, kinds, argument = [], [], []
    for word in [*head[start + 1:end], ","]:
        if word != "," or argument.count("[") > argument.count("]"):
            argument.append(word)
            continue
        before, default = split_at(argument, "=")
        named = before and re.match(r"\w", before[-1]) and len(before) > 1
        names += [before[-1]] if named else []
        kinds.append(" ".join(before[:-1] if named else before) + (f" = {' '.join(default)}" if default else ""))
        argument = []
    after = end + 2  # the arrow stands between
    last = closing(head, after) if head[after] == "(" else after
    results = [w for w in head[after:last + 1] if w in ("Tensor", "[", "]")]
    return names, kinds, results, head[last + 1:]


class Row:
    def __init__(self, text):
        (_, head), *rest = clauses(text)
        self.names, self.kinds, self.results, head = schema_of(head)
        self.family = clauses(text)[0][1][0]
        self.rest = rest
        self.lets = {}
        for words in (words for word, words in rest if word == "let"):
            self.learn_lets(words)
        self.typing, self.body = split_at(head, "=")

    def learn_lets(self, words):
        """NAME = expr { , NAME = expr }"""
        while words:
            end = 2
            while end < len(words) and not (words[end] == "," and words[end + 2:end + 3] == ["="]):
                end += 1
            self.lets[words[0]] = words[2:end]
            words = words[end + 1:]

    def expanded(self, words):
        """With `let`s replaced by what they stand for, and arguments by their positions."""
        made = []
        for k, word in enumerate(words):
            function = words[k + 1:k + 2] == ["("]
            if word in self.lets and not function:
                made += ["(", *self.expanded(self.lets[word]), ")"]
            elif word in self.names and not function:
                made.append(f"${self.names.index(word)}")
            else:
                made.append(word)
        return made

    def uses(self, body):
        """What inference sees of a body: the arguments in it, and those that are read unrounded."""
        used = {w for w in body if w.startswith("$")}
        exact = {body[k + 2] for k in range(len(body) - 3)
                 if body[k:k + 2] == ["compute", "("] and body[k + 2] in used and body[k + 3] == ")"}
        return f"uses {' '.join(sorted(used))} exact {' '.join(sorted(exact))}"

    def signature(self):
        lines = [f"{self.family} ({', '.join(self.kinds)}) -> {' '.join(self.results)}", " ".join(self.expanded(self.typing))]
        bodies = []

        def add_body(words):
            body = self.expanded(words)
            bodies.append(body)
            lines.append(f"  body like {bodies.index(body)}, {self.uses(body)}")
        if self.body is not None:
            add_body(self.body)
        for word, words in self.rest:
            if word in VALUES_ONLY or word == "let":
                continue
            if word == "when":
                condition, body = split_at(words, "=")
                lines.append(" ".join(["when", *self.expanded(condition)]))
                add_body(body)
            elif word == "check" and words[0] == "torch":
                continue  # counts for PyTorch's dispatcher alone: tests/torch
            elif word == "check":
                lines.append(" ".join(["check", *self.expanded(words[:-2])]))  # without ":" and the message
            else:
                lines.append(" ".join([word, *self.expanded(words)]))
        return "\n".join(lines)


def signature(text):
    return Row(text).signature()


class Groups:
    """Subjects of one form by signature.  In each group the first one in `preferred`, or else the first, speaks for it."""

    def __init__(self, subjects, preferred=(), signature_of=lambda s: signature(s.row)):
        self.members = {}
        for s in subjects:
            self.members.setdefault((signature_of(s), s.tame, s.avoid), []).append(s)
        self.speakers = {}  # name of each operator -> the one that speaks for its group
        for group in self.members.values():
            speaker = next((s for s in group if s.name in preferred), group[0])
            self.speakers |= {s.name: speaker.name for s in group}

    def speaks(self, s):
        return self.speakers[s.name] == s.name
