//! Saving logs, or the answers, on a stick or a server.

use super::{Conversation, ConversationEffect, ConversationPlace, SavedFile, Saving};
use crate::questions::{Destination, ShownTrouble};
use crate::toolkit::Key;
use crate::toolkit::form::{Choice, Field, Form, KeyEffect};
use crate::toolkit::page::Tone;
use install::usb_stick::StickSurvey;
use model::config::InstallConfig;
use model::config::text::HttpUrl;
use reporting::archive::UploadMethod;

const WHERE: &str = "where";
const METHOD: &str = "method";
const URL: &str = "url";

/// The upload methods of a server, in the order of the choice.
const METHODS: [(UploadMethod, &str); 2] = [
    (UploadMethod::Put, "PUT: the URL is the file\'s, or that of a directory"),
    (UploadMethod::Post, "POST: the URL takes files"),
];

impl Conversation {
    /// Asks where to save something.
    pub(super) fn keep(&mut self, what: SavedFile) -> Vec<ConversationEffect> {
        let back = self.take_place();
        self.message = None;
        let (url, method) = (String::new(), UploadMethod::default());
        let saving = Saving { what, found: None, chosen: None, url, method, trouble: None };
        self.show_saving(saving, back);
        self.wait("Looking for sticks", ConversationEffect::Survey)
    }

    pub(super) fn show_saving(&mut self, saving: Saving, back: Box<ConversationPlace>) {
        self.form = Form::new(fields(&saving, self.config.as_deref()));
        self.place = ConversationPlace::Save(saving, back);
    }

    pub(super) fn surveyed(&mut self, found: Result<StickSurvey, ShownTrouble>) {
        let ConversationPlace::Save(saving, _) = &mut self.place else { return };
        match found {
            Ok(found) => {
                // Another stick is another choice; a URL stays one.
                let was_url = saving.wants_url();
                saving.found = Some(found);
                saving.chosen = if was_url { saving.url_at() } else { saving.first() };
                saving.trouble = None;
            }
            Err(trouble) => {
                saving.found = Some(StickSurvey::default());
                saving.trouble = Some(trouble);
            }
        }
        self.form.replace(fields(saving, self.config.as_deref()));
    }

    pub(super) fn saved(&mut self, saved: Result<String, ShownTrouble>) -> Vec<ConversationEffect> {
        match saved {
            Ok(told) => {
                let effects = self.back_from();
                self.message = Some((Tone::Good, told));
                effects
            }
            Err(trouble) => {
                match &mut self.place {
                    ConversationPlace::Save(saving, _) => {
                        saving.trouble = Some(trouble);
                        self.form.replace(fields(saving, self.config.as_deref()));
                    }
                    _ => self.message = Some((Tone::Error, trouble.text())),
                }
                Vec::new()
            }
        }
    }

    pub(super) fn save_key(&mut self, key: Key) -> Vec<ConversationEffect> {
        match key {
            Key::Escape => return self.back_from(),
            Key::Function(5) => return self.wait("Looking for sticks", ConversationEffect::Survey),
            _ => {}
        }
        let at = self.form.focused().map(|field| field.id.clone()).unwrap_or_default();
        let did = self.form.key(key);
        let ConversationPlace::Save(saving, _) = &mut self.place else { return Vec::new() };
        let had_url = saving.wants_url();
        saving.take(&self.form);
        if saving.wants_url() != had_url {
            self.form.replace(fields(saving, self.config.as_deref()));
        }
        match did {
            // Enter takes a volume and saves; a URL has still to be typed.
            KeyEffect::Changed if key == Key::Enter && at == WHERE && !saving.wants_url() => self.save(),
            KeyEffect::Changed | KeyEffect::Left(_) if key == Key::Enter && at == WHERE => {
                self.form.focus_on(URL);
                Vec::new()
            }
            KeyEffect::Accepted => self.save(),
            _ => Vec::new(),
        }
    }

    fn save(&mut self) -> Vec<ConversationEffect> {
        let ConversationPlace::Save(saving, _) = &mut self.place else { return Vec::new() };
        saving.trouble = None;
        let destination = match saving.destination() {
            Ok(Some(destination)) => destination,
            Ok(None) => return Vec::new(),
            Err(why) => {
                if let Some(field) = self.form.fields.iter_mut().find(|field| field.id == URL) {
                    field.errors = vec![why];
                }
                return Vec::new();
            }
        };
        let what = saving.what;
        self.form.replace(fields(saving, self.config.as_deref()));
        match (what, destination, self.config.clone()) {
            (SavedFile::Logs, destination, _) => self
                .wait("Collecting and saving the logs", ConversationEffect::SaveLogs(Box::new(destination))),
            (SavedFile::Configuration, Destination::Volume(volume), Some(config)) => {
                self.wait("Saving", ConversationEffect::SaveConfiguration(config, Box::new(volume)))
            }
            (SavedFile::Configuration, ..) => Vec::new(),
        }
    }
}

impl Saving {
    fn count(&self) -> usize {
        self.found.as_ref().map_or(0, |found| found.volumes.len())
    }

    /// The index of the URL among the choices; only logs are sent to servers.
    fn url_at(&self) -> Option<usize> {
        (self.what == SavedFile::Logs).then(|| self.count())
    }

    fn wants_url(&self) -> bool {
        self.found.is_some() && self.chosen.is_some() && self.chosen == self.url_at()
    }

    /// The preselected place: a stick, if there is one.
    fn first(&self) -> Option<usize> {
        (self.count() > 0).then_some(0)
    }

    fn take(&mut self, form: &Form) {
        if let Some(field) = form.field(WHERE) {
            self.chosen = field.chosen();
        }
        if let Some(url) = form.field(URL).and_then(Field::typed) {
            self.url = url;
        }
        if let Some(at) = form.field(METHOD).and_then(Field::chosen) {
            self.method = METHODS.get(at).map_or(UploadMethod::Put, |(method, _)| *method);
        }
    }

    /// The chosen destination; `None` if nothing was chosen, and an error if it is not valid.
    fn destination(&self) -> Result<Option<Destination>, String> {
        if self.wants_url() {
            let url: HttpUrl = self.url.trim().parse().map_err(|_| NO_URL.to_owned())?;
            return Ok(Some(Destination::Url(url, self.method)));
        }
        let volumes = self.found.as_ref().map(|found| &found.volumes[..]).unwrap_or_default();
        Ok(self.chosen.and_then(|at| volumes.get(at)).cloned().map(Destination::Volume))
    }
}

fn fields(saving: &Saving, config: Option<&InstallConfig>) -> Vec<Field> {
    let mut fields = match saving.what {
        SavedFile::Logs => vec![Field::text("", LOGS)],
        SavedFile::Configuration if config.is_some_and(|config| config.token.is_some()) => {
            vec![Field::text("Keep this file secret", TOKEN), Field::text("", NEXT_NODE)]
        }
        SavedFile::Configuration => vec![Field::text("", NEXT_NODE)],
    };
    let Some(found) = &saving.found else { return fields };
    let volume =
        |volume: &install::usb_stick::StickVolume| Choice::new(volume.describe()).with(&*volume.disk);
    let mut options: Vec<_> = found.volumes.iter().map(volume).collect();
    if saving.what == SavedFile::Logs {
        options.push(Choice::new("A server, over HTTP or HTTPS"));
    }
    let mut choice = Field::choice(WHERE, "Where to?", options, saving.chosen);
    let trouble = saving.trouble.as_ref().map(ShownTrouble::text).unwrap_or_default();
    choice.errors = trouble.lines().map(str::to_owned).collect();
    if found.volumes.is_empty() {
        choice.warnings.push(NO_STICK.to_owned());
    }
    fields.push(choice);
    if !found.others.is_empty() {
        fields.push(Field::text("Cannot be used", &found.others.join("\n")));
    }
    if saving.wants_url() {
        let ways = METHODS.iter().map(|(_, name)| Choice::new(*name)).collect();
        let at = METHODS.iter().position(|(method, _)| *method == saving.method);
        fields.push(Field::choice(METHOD, "How does it take files?", ways, at));
        fields.push(Field::line(URL, "URL", &saving.url));
    }
    fields
}

const LOGS: &str = "The report has the error, the plan, the events, and the messages of kernel and system. Secrets are \
                    removed; names and addresses stay.";
const TOKEN: &str = "The file contains the cluster\'s token in clear text: anyone who has it can add \
    machines to the cluster. It contains a hash of the password.";
const NEXT_NODE: &str = "It answers every question as you have, and installs the next machine without asking. Give each machine a name \
                         of its own in os.hostname, its own disk, and its own addresses where they are fixed.";
const NO_STICK: &str = "there is no stick with FAT, exFAT or ext4. Plug one in, and press F5.";
const NO_URL: &str = "expected a URL that begins with http:// or https://";
