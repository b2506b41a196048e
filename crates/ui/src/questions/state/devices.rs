//! Disks and network cards that come or go while questions are open, or after a failure.

use super::{Conversation, ConversationEffect, ConversationPlace};
use crate::questions::ShownTrouble;
use crate::toolkit::form::FieldKind;
use crate::toolkit::page::Tone;
use machine::inventory::{Inventory, changes};

impl Conversation {
    /// Ignores changes while disks are written: most often the install makes them.
    pub(super) fn devices_changed(&self) -> Vec<ConversationEffect> {
        if self.is_working() { Vec::new() } else { vec![ConversationEffect::FollowDevices] }
    }

    /// Takes the new inventory, and keeps all that was typed and chosen.
    pub(super) fn follow_devices(
        &mut self,
        looked: Result<Inventory, ShownTrouble>,
    ) -> Vec<ConversationEffect> {
        // The user did not ask for this. A later request shows the error.
        let Ok(inventory) = looked else { return Vec::new() };
        let Some(changes) = changes(&self.facts.inventory, &inventory) else { return Vec::new() };
        self.facts.inventory = inventory;
        if let ConversationPlace::Asking(screen) = self.place {
            let mut fields = self.kept_fields(screen);
            for field in &mut fields {
                let typed = self.form.field(&field.id).map(|old| &old.kind);
                if let Some(kind @ (FieldKind::Line(_) | FieldKind::Secret(_))) = typed {
                    field.kind = kind.clone();
                }
            }
            self.form.replace(fields);
            self.say_mistakes(screen);
        }
        let plan_failed = matches!(&self.place, ConversationPlace::Review(review)
            if review.plan.is_none() && !review.mistakes.is_empty() && self.config.is_some());
        if plan_failed && self.busy.is_none() {
            return self.review();
        }
        let hint = match &self.place {
            ConversationPlace::Failed(..) => " Enter tries again.",
            _ => "",
        };
        // A mistake on this screen is more important.
        let free = !matches!(self.message, Some((Tone::Error | Tone::Warning, _)));
        let tells = matches!(
            self.place,
            ConversationPlace::Asking(_)
                | ConversationPlace::Failed(..)
                | ConversationPlace::Unfit(_)
                | ConversationPlace::Disks(..)
        );
        if tells && free && self.busy.is_none() {
            self.message = Some((Tone::Good, format!("{changes}{hint}")));
        }
        Vec::new()
    }
}
