"""Tables that become lists on a phone: every cell knows the head of its column, and nothing hostile gets out."""

import re

from auditcore.figures import stack
from auditcore.figures.tables import table_html
from auditcore.words import escape

HEAD = '<tr><th scope="col">attack</th><th scope="col" class="num">AUC<small>95 % interval</small></th></tr>'


def cells(html: str) -> list[tuple[str, str]]:
    return re.findall(r'<t[dh][^>]* data-th="([^"]*)"[^>]*>(.*?)</t[dh]>', html.split("<tbody>")[1])


def test_every_cell_carries_the_words_of_its_head() -> None:
    body = '<tr><th scope="row">EZ</th><td class="num">0.8</td></tr><tr><th scope="row">loss</th><td>0.7</td></tr>'
    said = cells(stack.table(HEAD, body))
    assert said == [("attack", "EZ"), ("AUC, 95 % interval", "0.8"), ("attack", "loss"), ("AUC, 95 % interval", "0.7")]


def test_a_head_without_words_labels_nothing_and_a_row_may_be_longer_than_the_head() -> None:
    html = stack.table('<tr><th scope="col"></th></tr>', '<tr><td>a</td><td class="num">b</td></tr>')
    assert "data-th" not in html
    assert '<td class="num">b</td>' in html


def test_only_tables_of_many_columns_are_stacked() -> None:
    def names(n: int) -> list[str]:
        head = "<tr>" + '<th scope="col">x</th>' * n + "</tr>"
        return re.findall(r'<table class="([^"]*)"', stack.table(head, ""))[0].split()

    assert names(3) == ["ac-table"]
    assert names(5) == ["ac-table", "ac-stack"]
    assert names(9) == ["ac-table", "ac-stack", "ac-wide"]
    assert 'class="ac-table at"' in table_html("<tr><th>x</th></tr>", "")


def test_a_hostile_name_in_a_head_stays_text() -> None:
    name = escape('"><script>alert(1)</script>')
    html = stack.table(f"<tr><th>{name}</th></tr>", "<tr><td>1</td></tr>")
    assert "<script>" not in html
    assert cells(html) == [(name, "1")]
