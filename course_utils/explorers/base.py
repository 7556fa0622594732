"""What every explorer shares: controls that redraw a picture, and a picture where there are none.

An explorer's ``draw(**parameters) -> Figure`` is pure and knows nothing of widgets. ``Explorer``
puts controls before it. Only what ipywidgets 7.7 (Google Colab) and 8 have in common is used.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets
from matplotlib.figure import Figure

from course_utils import plots

# Enough for sharp text at the 720 CSS pixels of a notebook, and quick to draw.
_PIXELS_PER_INCH = 120
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
# On a closed list the down arrow moves JupyterLab's cell selection instead.
_KEYBOARD_HELP = (
    '<div style="line-height: 1.4; font-size: 12px; opacity: 0.8">By keyboard: Tab goes to the '
    "next control; arrow keys move a slider; Space ticks a box, presses a button or opens a "
    "list.</div>"
)

Rule = Callable[[Mapping[str, Any]], None]


class Explorer:
    """A picture with controls.

    Args:
        draw: takes one keyword argument per control and returns a matplotlib ``Figure``.
        controls: a widget per parameter, in the order in which they are shown. A control that
            another one limits comes after it.
        caption: one sentence that says what to see; shown below, whatever is chosen.
        describe: takes the same arguments as ``draw`` and says in plain words what the picture
            shows just now. It is the picture's text for those who cannot see it.
        rules: called with the controls after each change and before each drawing, to narrow what
            one control offers to what another allows (see ``offer``).

    Changing a control's ``value``, by hand or in Python, redraws. A ``draw`` that fails shows its
    error below the controls and raises it too, so that a test run notices.
    """

    def __init__(
        self,
        draw: Callable[..., Figure],
        controls: Mapping[str, Any],
        *,
        caption: str,
        describe: Callable[..., str],
        rules: Sequence[Rule] = (),
    ) -> None:
        nameless = [name for name, control in controls.items() if not control.description]
        if nameless:
            raise ValueError(
                f"every control needs a description; these have none: {', '.join(nameless)}."
            )
        self.draw = draw
        self.controls = dict(controls)
        self.caption = caption
        self.describe = describe
        self._rules = tuple(rules)
        self._holding = False
        self.image = widgets.Image(format="png")
        self.image.layout.width = f"{round(plots.WIDTH * 96)}px"
        self.image.layout.max_width = "100%"
        self.image.layout.object_fit = "contain"
        self.message = widgets.HTML()
        for control in self.controls.values():
            control.style.description_width = "initial"
            if isinstance(control, widgets.ToggleButtons):
                # Else the description stands on a line of its own above the buttons.
                control.layout.display = "flex"
                control.layout.flex_flow = "row"
                control.layout.width = "auto"
                control.layout.margin = "2px 12px"
            control.observe(self._changed, names="value")
        row = widgets.HBox(list(self.controls.values()))
        row.layout.flex_flow = "row wrap"
        row.layout.max_width = f"{round(plots.WIDTH * 96)}px"
        self.widget = widgets.VBox([row, widgets.HTML(_KEYBOARD_HELP), self.message, self.image])
        self._changed()

    @property
    def parameters(self) -> dict[str, Any]:
        """The current values of the controls, by name."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values: Any) -> None:
        """Set several controls and redraw once.

        Raises ``ValueError`` for a name without a control or a value that is not offered (given the
        others); then nothing has changed.
        """
        unknown = [name for name in values if name not in self.controls]
        if unknown:
            raise ValueError(
                f"no control named {', '.join(unknown)}; there are: {', '.join(self.controls)}."
            )
        before = self.parameters
        self._holding = True
        try:
            # In the order of the controls: a limiting one before the one that it limits.
            for name in (name for name in self.controls if name in values):
                self._set_one(name, values[name])
        except ValueError:
            self._restore(before)
            raise
        finally:
            self._holding = False
        self._changed()

    def figure(self) -> Figure:
        """Return the current picture as a new figure."""
        return self.draw(**self.parameters)

    def _set_one(self, name: str, value: Any) -> None:
        control = self.controls[name]
        allowed = choices(control)
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is not offered; choose from {_listing(allowed)}.")
        control.value = value
        self._apply_rules()

    def _restore(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.controls[name].value = value
            self._apply_rules()

    def _apply_rules(self) -> None:
        for rule in self._rules:
            rule(self.controls)

    def _changed(self, _change: Any = None) -> None:
        """Redraw, once, after a change; changes that the rules make in turn are part of it."""
        if self._holding:
            return
        self._holding = True
        try:
            self._apply_rules()
            self._redraw()
        finally:
            self._holding = False

    def _redraw(self) -> None:
        try:
            picture = plots.png(self.draw(**self.parameters), dpi=_PIXELS_PER_INCH, compression=1)
            words = self.describe(**self.parameters)
        except Exception as error:
            # The old picture would belong to other values.
            self.image.layout.display = "none"
            self.message.value = (
                '<div role="alert"><b>This picture could not be drawn.</b> '
                f"{html.escape(type(error).__name__)}: {html.escape(str(error))}</div>"
            )
            raise
        self.image.layout.display = ""
        # Replacing an image's bytes replaces the picture in every front end; a cleared Output would
        # pile pictures up in Colab.
        self.image.value = picture
        self.message.value = (
            f'<div aria-live="polite" style="line-height: 1.4">{html.escape(words)}</div>'
        )

    def _plain(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.describe(**self.parameters)}\n{plots.plain(self.caption)}\n({shown})"

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the controls for front ends with widgets; picture and words for all others."""
        data, metadata = plots.png_bundle(self.figure(), self.describe(**self.parameters))
        data["text/plain"] = self._plain()
        if self.widget.model_id is not None:
            view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
            data[_WIDGET_VIEW] = view
        return data, metadata

    def _ipython_display_(self) -> None:
        """Show the explorer, and its caption as a visible sentence below."""
        from IPython.display import display

        data, metadata = self._repr_mimebundle_()
        display(data, metadata=metadata, raw=True)
        plots.show_caption(self.caption)

    def __repr__(self) -> str:
        return self._plain()


def choices(control: Any) -> Sequence[Any]:
    """Return the values that a control offers now."""
    if hasattr(control, "options"):
        # Options are (label, value) pairs or plain values; ``_options_values`` would be private.
        options = control.options
        options = options.items() if isinstance(options, Mapping) else options
        return [o[1] if isinstance(o, tuple) and len(o) == 2 else o for o in options]
    if hasattr(control, "max"):
        return range(control.min, control.max + 1, control.step)
    return [False, True]


def offer(control: Any, options: Sequence[Any], instead: Sequence[Any] = ()) -> None:
    """Give a control other options, and keep its value where they still contain it.

    Where they do not, it takes the first of ``instead`` that they contain, else the first option.
    """
    if list(control.options) == list(options):
        return
    kept = control.value
    control.options = list(options)
    for value in (kept, *instead):
        if value in choices(control):
            control.value = value
            return


def _listing(values: Sequence[Any]) -> str:
    if isinstance(values, range):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(repr(value) for value in values)
