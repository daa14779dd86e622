"""Every colour that words are written in can be read on light and on dark paper: WCAG AA, 4.5:1; 3:1 where large."""

import re
import tomllib
from pathlib import Path

import pytest

from auditcore.figures import theme
from auditcore.figures.canvas import Canvas
from pages import _ui as ui

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
STYLE = (ROOT / "pages" / "_style.css").read_text(encoding="utf-8")
TOKENS = (ROOT / "auditcore" / "figures" / "html.css").read_text(encoding="utf-8")
AA, LARGE = 4.5, 3.0
MODES = pytest.mark.parametrize("mode", ["light", "dark"])

Colour = tuple[float, float, float]


def rgb(text: str) -> Colour:
    return int(text[1:3], 16) / 255, int(text[3:5], 16) / 255, int(text[5:7], 16) / 255


def mix(one: Colour, share: float, other: Colour) -> Colour:
    """CSS color-mix in srgb: `share` of one, the rest of the other."""
    red, green, blue = (share * a + (1 - share) * b for a, b in zip(one, other, strict=True))
    return red, green, blue


def contrast(one: Colour, other: Colour) -> float:
    """Ratio of WCAG 2.2."""

    def luminance(colour: Colour) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def papers(mode: str) -> list[Colour]:
    """Background of the page and of what stands on it."""
    return [rgb(CONFIG[mode][key]) for key in ("backgroundColor", "secondaryBackgroundColor")]


def share(css: str, rule: str, colour: str) -> float:
    """The percentage that `rule` of the style sheet mixes `colour` with."""
    body = re.search(re.escape(rule) + r"[^{}]*\{([^}]*)\}", css)
    assert body, rule
    found = re.search(r"(?<!-)color: color-mix\(in srgb, " + re.escape(colour) + r" (\d+)%", body.group(1))
    assert found, rule
    return int(found.group(1)) / 100


def test_the_measure_is_the_one_of_wcag() -> None:
    assert contrast(rgb("#000000"), rgb("#FFFFFF")) == pytest.approx(21.0)
    assert contrast(rgb("#767676"), rgb("#FFFFFF")) == pytest.approx(4.54, abs=0.01)


@MODES
@pytest.mark.parametrize("hue", list(theme.TEXT))
def test_every_colour_of_a_chart_is_written_in_one_that_can_be_read(mode: str, hue: str) -> None:
    written = rgb(theme.TEXT[hue][mode == "dark"])
    assert contrast(written, papers(mode)[0]) >= AA
    assert contrast(rgb(hue), papers(mode)[0]) >= (LARGE if hue != theme.INK or mode == "light" else 0)


def test_no_colour_of_data_is_without_one_to_write_in() -> None:
    for hue in (*theme.SERIES, theme.ROSE, theme.QUIET, theme.INK, *theme.VERDICT_COLOURS.values()):
        assert hue in theme.TEXT


def test_the_pages_write_labels_in_the_second_colour_on_dark_paper() -> None:
    for light, dark in theme.TEXT.values():
        place = ", ".join(str(round(255 * c)) for c in rgb(light))
        rule = f'.js-plotly-plot text[style*="fill: rgb({place})"] {{ fill: light-dark({light}, {dark}) !important; }}'
        assert rule in STYLE


def test_a_label_and_an_axis_never_take_a_colour_of_data() -> None:
    fig = Canvas(200)
    fig.xaxis(title="share")
    for hue in theme.TEXT:
        fig.note("said", 0, 0, font={"size": 12, "color": hue})
    fig.note("plain", 0, 0)
    drawn = fig.figure()
    readable = {light for light, _ in theme.TEXT.values()}
    assert {a.font.color for a in drawn.layout.annotations} <= readable
    for axis in (drawn.layout.xaxis, drawn.layout.yaxis):
        assert axis.tickfont.color in readable
        assert axis.title.font.color in readable
    assert theme.for_paper(drawn).layout.xaxis.tickfont.color in readable


@MODES
def test_buttons_and_links_can_be_read(mode: str) -> None:
    primary, link = rgb(CONFIG[mode]["primaryColor"]), rgb(CONFIG[mode]["linkColor"])
    assert contrast(rgb("#FFFFFF"), primary) >= AA  # Streamlit writes white on it
    for paper in papers(mode):
        assert contrast(primary, paper) >= LARGE  # a shape, not words
        assert contrast(link, paper) >= AA
        assert contrast(rgb(CONFIG[mode]["textColor"]), paper) >= 7


@MODES
@pytest.mark.parametrize("hue", sorted(set(ui.HUES.values())))
def test_pills_and_notices_can_be_read(mode: str, hue: str) -> None:
    ink, paper = rgb(CONFIG[mode]["textColor"]), papers(mode)[0]
    pill = mix(rgb(hue), share(STYLE, ".ac-pill", "var(--hue)"), ink)
    assert contrast(pill, mix(rgb(hue), 0.15, paper)) >= AA
    notice = mix(rgb(hue), share(STYLE, ".ac-notice b:first-child", "var(--hue)"), ink)
    assert contrast(notice, mix(rgb(hue), 0.09, paper)) >= AA
    word = mix(rgb(hue), share(TOKENS, ".at small.df-word", "var(--hue)"), ink)
    assert contrast(word, mix(rgb(hue), 0.09, paper)) >= AA


@MODES
def test_quiet_words_can_be_read(mode: str) -> None:
    ink = rgb(CONFIG[mode]["textColor"])
    for paper in papers(mode):
        for css, rule in (
            *((STYLE, r) for r in (".ac-quiet", ".ac-card-detail", ".ac-facts dt")),
            *((TOKENS, r) for r in (".tk-map > .u", ".tk-legend", ".at small")),
        ):
            assert contrast(mix(ink, share(css, rule, "currentColor"), paper), paper) >= AA, rule
    link = mix(rgb("#128A80"), share(STYLE, '[data-testid="stPageLink"] p', "#128A80"), ink)
    assert contrast(link, papers(mode)[0]) >= AA
    assert contrast(mix(rgb("#C2362B"), share(TOKENS, ".df-tag", "#C2362B"), ink), papers(mode)[0]) >= AA
