//! Forms as people use and see them.

use proptest::prelude::*;
use ratatui::layout::Size;

use super::super::testing::{shown, theme};
use super::*;

fn form() -> Form {
    let marks = ["ens3", "ens4"].map(|name| (Choice::new(name), false)).to_vec();
    Form::new(vec![
        Field::text("", "What this is about."),
        Field::choice(
            "mode",
            "Mode",
            vec![Choice::new("Create").with("a new cluster"), Choice::new("Join")],
            Some(0),
        ),
        Field::line("name", "Host name", "node-1").remark(Some("from DHCP".into())),
        Field::secret("token", "Token", ""),
        Field::marks("cards", "Cards", marks),
    ])
}

fn press(form: &mut Form, keys: &[Key]) -> Vec<KeyEffect> {
    keys.iter().map(|key| form.key(*key)).collect()
}

#[test]
fn moving_changes_nothing_and_enter_takes_what_is_under_the_cursor() {
    let mut form = form();
    assert_eq!(press(&mut form, &[Key::Down, Key::Down]), [KeyEffect::Stayed, KeyEffect::Left(1)]);
    assert_eq!(form.field("mode").unwrap().chosen(), Some(0));
    assert_eq!(press(&mut form, &[Key::Up]), [KeyEffect::Left(2)]);
    press(&mut form, &[Key::Down]);
    assert_eq!(press(&mut form, &[Key::Enter, Key::Enter]), [KeyEffect::Changed, KeyEffect::Left(1)]);
    assert_eq!(form.field("mode").unwrap().chosen(), Some(1));
}

#[test]
fn text_goes_into_the_line_in_focus_and_enter_on_the_last_field_accepts() {
    let mut form = form();
    press(&mut form, &[Key::Tab, Key::Char('0'), Key::Tab, Key::Char('x'), Key::Char('y')]);
    assert_eq!(form.field("name").unwrap().typed().as_deref(), Some("node-10"));
    assert_eq!(form.field("token").unwrap().typed().as_deref(), Some("xy"));
    assert_eq!(
        press(&mut form, &[Key::Enter, Key::Down, Key::Char(' '), Key::Enter]),
        [KeyEffect::Left(3), KeyEffect::Stayed, KeyEffect::Changed, KeyEffect::Accepted]
    );
    assert_eq!(form.field("cards").unwrap().marked(), [1]);
    assert_eq!(press(&mut form, &[Key::Escape, Key::Function(5)]), [KeyEffect::Nothing, KeyEffect::Nothing]);
}

#[test]
fn what_is_barred_cannot_be_taken_and_says_why() {
    let barred = Choice { barred: Some("it holds the medium".into()), ..Choice::new("/dev/sr0") };
    let mut form = Form::new(vec![Field::choice("disk", "Disk", vec![barred], None)]);
    assert_eq!(press(&mut form, &[Key::Enter, Key::Char(' ')]), [KeyEffect::Stayed, KeyEffect::Stayed]);
    assert_eq!(form.fields[0].chosen(), None);
    let picture = shown(Size::new(60, 4), |frame| form.draw(frame, frame.area(), theme()));
    assert_eq!(picture, "Disk\n  ( ) /dev/sr0\n      cannot be used: it holds the medium\n\n");
}

#[test]
fn a_form_shows_every_field_and_no_secret_unless_asked() {
    let mut form = form();
    press(&mut form, &[Key::Tab, Key::Tab, Key::Char('s'), Key::Char('3')]);
    form.fields[3].errors.push("the token has fewer than 16 characters".into());
    let draw = |form: &mut Form| shown(Size::new(60, 14), |frame| form.draw(frame, frame.area(), theme()));
    assert_eq!(
        draw(&mut form),
        "What this is about.\n\nMode\n  (*) Create\n      a new cluster\n  ( ) Join\n\n\
         Host name           node-1_______________________  from DHCP\n\
         Token               **\n                    ! the token has fewer than 16 characters\n\
         Cards\n  [ ] ens3\n  [ ] ens4\n\n"
    );
    form.shows_secrets = true;
    assert!(draw(&mut form).contains("Token               s3\n"));
}

#[test]
fn fields_that_are_made_anew_keep_the_focus_and_the_cursor() {
    let mut form = form();
    press(&mut form, &[Key::Tab, Key::Home]);
    let fields = form.fields.clone();
    form.replace(fields);
    assert_eq!(form.focused().unwrap().id, "name");
    press(&mut form, &[Key::Char('x')]);
    assert_eq!(form.field("name").unwrap().typed().as_deref(), Some("xnode-1"));
}

#[test]
fn enter_takes_what_is_chosen_in_new_options_unless_the_user_moved_to_another() {
    let choice = |options: &[&str], chosen| {
        let options = options.iter().map(|option| Choice::new(*option)).collect();
        vec![Field::choice("where", "Where to?", options, chosen)]
    };
    let mut form = Form::new(choice(&["A server"], None));
    // A stick was plugged in, and is what is chosen now.
    form.replace(choice(&["The stick", "A server"], Some(0)));
    assert_eq!(form.decide(Key::Enter), Some(0));
    press(&mut form, &[Key::Down]);
    form.replace(choice(&["Another stick", "The stick", "A server"], Some(0)));
    assert_eq!(form.decide(Key::Enter), Some(2));
}

proptest! {
    #[test]
    fn whatever_is_pressed_in_whatever_size_the_focus_is_seen(
        keys in proptest::collection::vec(
            prop_oneof![
                Just(Key::Up), Just(Key::Down), Just(Key::Tab), Just(Key::BackTab), Just(Key::Enter),
                Just(Key::Char(' ')), Just(Key::Backspace), Just(Key::Left), Just(Key::Home), Just(Key::Delete),
            ], 0..30),
        width in 0u16..90, height in 1u16..10,
    ) {
        let mut form = form();
        press(&mut form, &keys);
        let _ = shown(Size::new(width, height), |frame| form.draw(frame, frame.area(), theme()));
        let focused = form.focused().unwrap().id.clone();
        prop_assert!(form.field(&focused).is_some());
        if width > 40 && height > 2 {
            let picture = shown(Size::new(width, height), |frame| form.draw(frame, frame.area(), theme()));
            let label = match focused.as_str() { "mode" => "(", "name" => "Host name", "token" => "Token", _ => "[" };
            prop_assert!(picture.contains(label), "{} in {}", focused, picture);
        }
    }
}
