"""Parts of the template and of other tasks are left out, with their marks and nothing else."""

from template.parts import keep_parts

TEXT = """\
[
# begin template
own
# end template
]
# begin task digits
rows
# end task digits
---
| a | <!-- task digits -->
| b | <!-- task other -->
cookiecutter . <!-- template -->
the end of a template
"""


def test_the_parts_of_the_task_are_kept_without_their_marks() -> None:
    assert keep_parts("x", TEXT, "digits") == "[\n]\nrows\n---\n| a |\nthe end of a template\n"


def test_the_parts_of_other_tasks_are_left_out() -> None:
    assert keep_parts("x", TEXT, "other") == "[\n]\n---\n| b |\nthe end of a template\n"


def test_a_page_has_no_gap_where_a_part_was() -> None:
    text = "a\n\n<!-- begin task x -->\nb\n\n<!-- end task x -->\n\nc\n"

    assert keep_parts("a.md", text, "digits") == "a\n\nc\n"
    assert keep_parts("a.py", text, "digits") == "a\n\n\nc\n"
