//! The terminal: screens at two sizes, keys, the mouse.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use scheduler::shell::observer::Observer;
use view::top::look;
use view::top::screen::draw;
use view::top::state::{Action, State, Zoom};

use crate::fixture;

/// The 26th of November 2026.
const NOW_MS: u64 = 1_795_651_200_000;
const SIZES: [(u16, u16); 2] = [(80, 24), (120, 40)];

/// A state, and the cluster that it asks.
struct Session {
    state: State,
    observer: Observer,
}

impl Session {
    async fn open() -> Self {
        let (_folder, input) = fixture::dump();
        let observer = input.observe_once("test").await.unwrap();
        let mut session = Self { state: State { is_dump: true, ..State::default() }, observer };
        session.look().await;
        session
    }

    async fn look(&mut self) {
        look(&mut self.state, &self.observer, NOW_MS).await;
    }

    async fn press(&mut self, code: KeyCode) -> Action {
        let event = Event::Key(KeyEvent::new(code, KeyModifiers::NONE));
        let reaction = self.state.react(&event, 24);
        if reaction == Action::Look {
            self.look().await;
        }
        reaction
    }

    /// The screens at both sizes.
    fn compare(&self, name: &str) {
        for (width, height) in SIZES {
            let file = format!("top-{name}-{width}x{height}.txt");
            testkit::golden::compare(env!("CARGO_MANIFEST_DIR"), &file, &screen(&self.state, width, height));
        }
    }
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(state, frame)).unwrap();
    let cells = terminal.backend().buffer().content().chunks(width.into());
    let line = |cells: &[ratatui::buffer::Cell]| {
        let text: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", text.trim_end())
    };
    cells.map(line).collect()
}

#[tokio::test]
async fn zooms_look_as_they_did() {
    let mut session = Session::open().await;
    session.compare("cluster");
    session.press(KeyCode::Enter).await;
    assert_eq!(session.state.zoom, Zoom::Node("by-ids".to_owned()));
    session.compare("node");
    session.press(KeyCode::Esc).await;
    session.press(KeyCode::Char('w')).await;
    session.compare("waiting");
    session.press(KeyCode::Enter).await;
    session.compare("pod");
}

#[tokio::test]
async fn keys_sort_filter_and_end() {
    let mut session = Session::open().await;
    let names = |session: &Session| -> Vec<String> {
        session.state.nodes().iter().map(|node| node.name.to_string()).collect()
    };
    assert_eq!(names(&session), ["by-ids", "by-zones", "silent"]);
    session.press(KeyCode::Char('s')).await;
    assert_eq!(names(&session), ["by-zones", "by-ids", "silent"], "most free first");
    session.press(KeyCode::Char('r')).await;
    assert_eq!(session.state.resource(), "memory");
    session.press(KeyCode::Char('/')).await;
    for c in "silq".chars() {
        session.press(KeyCode::Char(c)).await;
    }
    session.press(KeyCode::Backspace).await;
    session.press(KeyCode::Enter).await;
    assert_eq!(names(&session), ["silent"]);
    session.press(KeyCode::Esc).await;
    assert_eq!(names(&session).len(), 3);
    assert_eq!(session.press(KeyCode::Char('q')).await, Action::End);
}

#[tokio::test]
async fn the_chosen_row_stays_on_the_screen() {
    let mut session = Session::open().await;
    session.press(KeyCode::End).await;
    assert_eq!(session.state.selected, 2);
    assert_eq!((session.state.first_row(24), session.state.first_row(6)), (0, 1));
    session.press(KeyCode::Home).await;
    session.press(KeyCode::Up).await;
    assert_eq!(session.state.selected, 0);
}

#[tokio::test]
async fn a_click_chooses_and_another_opens() {
    let mut session = Session::open().await;
    let click = |row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        Event::Mouse(MouseEvent { kind, column: 5, row, modifiers: KeyModifiers::NONE })
    };
    assert_eq!(session.state.react(&click(4), 24), Action::Draw);
    assert_eq!(session.state.selected, 1);
    assert_eq!(session.state.react(&click(4), 24), Action::Look);
    assert_eq!(session.state.zoom, Zoom::Node("by-zones".to_owned()));
    let mut elsewhere = Session::open().await;
    assert_eq!(elsewhere.state.react(&click(20), 24), Action::Draw);
    assert_eq!(elsewhere.state.selected, 0);
}

#[tokio::test]
async fn an_outage_is_told_with_its_age() {
    let mut session = Session::open().await;
    session.state.reached(Err("refused".to_owned()), NOW_MS - 7_000);
    session.state.reached(Err("refused".to_owned()), NOW_MS);
    let text = screen(&session.state, 80, 24);
    assert!(text.contains("no answer from the API server for 7 s: this may be old"), "{text}");
    assert!(text.contains("by-ids"), "what is known stays: {text}");
    session.state.reached(Ok(()), NOW_MS);
    assert!(screen(&session.state, 80, 24).contains("a dump"));
}
