//! Colours, attributes and characters by meaning. A word or a mark always repeats what a colour says.

use ratatui::style::{Color, Modifier, Style};

use super::{Capabilities, Characters, Colours};

#[derive(Clone, Copy, Debug)]
pub struct Theme {
    capabilities: Capabilities,
}

impl Theme {
    #[must_use]
    pub fn of(capabilities: Capabilities) -> Self {
        Self { capabilities }
    }

    fn colour(self, colour: Color, without: Modifier) -> Style {
        match self.capabilities.colours {
            Colours::None => Style::new().add_modifier(without),
            _ => Style::new().fg(colour),
        }
    }

    /// The title line, and the line of keys.
    #[must_use]
    pub fn bar(self) -> Style {
        match self.capabilities.colours {
            Colours::None => Style::new().add_modifier(Modifier::REVERSED),
            _ => Style::new().fg(Color::White).bg(Color::Blue),
        }
    }

    #[must_use]
    pub fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// What the next key changes.
    #[must_use]
    pub fn focus(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    #[must_use]
    pub fn good(self) -> Style {
        self.colour(Color::Green, Modifier::empty())
    }

    /// What the user should know.
    #[must_use]
    pub fn warning(self) -> Style {
        self.colour(Color::Yellow, Modifier::BOLD)
    }

    /// Errors, and what will be lost.
    #[must_use]
    pub fn error(self) -> Style {
        self.colour(Color::LightRed, Modifier::BOLD)
    }

    #[must_use]
    pub fn remark(self) -> Style {
        self.colour(Color::Cyan, Modifier::empty())
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
    pub fn has_colours(self) -> bool {
        self.capabilities.colours > Colours::None
    }
}
