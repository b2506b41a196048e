//! Loading a configuration when the machine is already running: from a volume, or a URL.

use super::{Conversation, ConversationEffect, ConversationPlace};
use crate::questions::ConfigOrigin;
use crate::questions::screens::QuestionScreen;
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form, KeyEffect};
use crate::toolkit::page::Tone;

const FROM: &str = "from";
const URL: &str = "url";
const BEHIND_URL: usize = 1;

impl Conversation {
    pub(super) fn load(&mut self) {
        self.message = None;
        let url = self.answers.text("install.config_url");
        self.form = Form::new(fields(usize::from(!url.is_empty()), &url));
        self.place = ConversationPlace::Load;
    }

    pub(super) fn load_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        if key == Key::Escape {
            self.ask(QuestionScreen::Welcome);
            return Vec::new();
        }
        let at = self.form.focused().map(|field| field.id.clone()).unwrap_or_default();
        let had = self.from();
        let did = self.form.key(key);
        let from = self.from();
        if from != had {
            let url = self.url();
            self.form.replace(fields(from, &url));
        }
        let enters = key == Key::Enter && at == FROM;
        match did {
            KeyEffect::Changed | KeyEffect::Left(_) if enters && from == BEHIND_URL => {
                self.form.focus_on(URL);
                Vec::new()
            }
            KeyEffect::Changed if enters => self.fetch(from),
            KeyEffect::Accepted => self.fetch(from),
            _ => Vec::new(),
        }
    }

    fn fetch(&mut self, from: usize) -> Vec<ConversationEffect> {
        self.message = None;
        if from != BEHIND_URL {
            return self.wait("Reading the volume", ConversationEffect::Fetch(ConfigOrigin::Volume));
        }
        let url = self.url();
        match model::config::formats::network::http_url(&url) {
            Ok(()) => {
                self.wait("Fetching the configuration", ConversationEffect::Fetch(ConfigOrigin::Url(url)))
            }
            Err(fault) => {
                self.message = Some((Tone::Error, format!("the URL {}", fault.message)));
                Vec::new()
            }
        }
    }

    fn from(&self) -> usize {
        self.form.field(FROM).and_then(Field::chosen).unwrap_or_default()
    }

    fn url(&self) -> String {
        let typed = self.form.field(URL).and_then(Field::typed);
        typed.unwrap_or_else(|| self.answers.text("install.config_url")).trim().to_owned()
    }
}

fn fields(from: usize, url: &str) -> Vec<Field> {
    let origins = vec![
        Choice::new("On a volume that is plugged in").with(LABELS),
        Choice::new("Behind a URL").with("It begins with http:// or https://."),
    ];
    let mut fields = vec![
        Field::text("", LOADING),
        Field::choice(FROM, "Where is the configuration?", origins, Some(from)),
    ];
    if from == BEHIND_URL {
        fields.push(Field::line(URL, "URL", url));
    }
    fields
}

const LOADING: &str = "Its values fill in the answers, which can then be changed.";
const LABELS: &str = "Its label is NQRUST-CONFIG (with FAT NQRUST-CONF) or CIDATA.";
