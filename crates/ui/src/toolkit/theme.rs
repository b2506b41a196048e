//! Colors, attributes and characters by meaning. A word or a mark always repeats what a color says.

use ratatui::style::{Color, Modifier, Style};

use super::{Capabilities, Characters, Colors};

#[derive(Clone, Copy, Debug)]
pub struct Theme {
    capabilities: Capabilities,
}

impl Theme {
    #[must_use]
    pub fn of(capabilities: Capabilities) -> Self {
        Self { capabilities }
    }

    fn color(self, color: Color, without: Modifier) -> Style {
        match self.capabilities.colors {
            Colors::None => Style::new().add_modifier(without),
            _ => Style::new().fg(color),
        }
    }

    /// The title line, and the line of keys.
    #[must_use]
    pub fn bar(self) -> Style {
        match self.capabilities.colors {
            Colors::None => Style::new().add_modifier(Modifier::REVERSED),
            _ => Style::new().fg(Color::White).bg(Color::Blue),
        }
    }

    #[must_use]
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The part that has the focus.
    #[must_use]
    pub fn focus(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    #[must_use]
    pub fn good(self) -> Style {
        self.color(Color::Green, Modifier::empty())
    }

    #[must_use]
    pub fn warning(self) -> Style {
        self.color(Color::Yellow, Modifier::BOLD)
    }

    /// Errors, and what will be lost.
    #[must_use]
    pub fn error(self) -> Style {
        self.color(Color::LightRed, Modifier::BOLD)
    }

    #[must_use]
    pub fn remark(self) -> Style {
        self.color(Color::Cyan, Modifier::empty())
    }

    #[must_use]
    pub fn rule(self) -> &'static str {
        if self.has_lines() { "─" } else { "-" }
    }

    /// The filled and the empty part of a bar.
    #[must_use]
    pub fn gauge(self) -> (&'static str, &'static str) {
        if self.has_lines() { ("█", "░") } else { ("#", ".") }
    }

    #[must_use]
    pub fn has_lines(self) -> bool {
        self.capabilities.characters > Characters::Ascii
    }

    #[must_use]
    pub fn has_colors(self) -> bool {
        self.capabilities.colors > Colors::None
    }
}
