//! Snapshots of the screen, and properties of every frame.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::{Clock, Theme, draw};
use crate::app::App;
use crate::follow::LogUpdate;
use crate::keys::Action;
use crate::model::Round;
use crate::screen::Sort;
use crate::test_node;

fn app(names: &[&str], width: u16, height: u16, cores: u32) -> App {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let count = names.len();
    let mut app = App::new(names, width, height);
    for second in 10..30 {
        for node in 0..count {
            app.apply_round(node, test_node::round(second, cores));
        }
    }
    app
}

fn drawn_with(app: &App, theme: Theme) -> Terminal<TestBackend> {
    let backend = TestBackend::new(app.screen.width, app.screen.height);
    let mut terminal = Terminal::new(backend).unwrap();
    let clock = Clock {
        at: Duration::from_secs(42),
        unix_seconds: 1_000_000 + 3 * 86_400 + 4 * 3600,
        time_of_day: "23:32:14".to_owned(),
    };
    terminal
        .draw(|frame| draw(frame, app, theme, &clock))
        .unwrap();
    terminal
}

fn drawn(app: &App) -> String {
    drawn_with(app, Theme::new(true, false))
        .backend()
        .to_string()
}

fn log(app: &mut App, lines: u32) {
    app.apply_log(LogUpdate::Restarted);
    for line in 0..lines {
        let text = format!("2026-11-15T21:21:45Z INFO line number {line}\n");
        app.apply_log(LogUpdate::Bytes(text.into()));
    }
}

#[test]
fn one_node_on_a_small_terminal() {
    insta::assert_snapshot!(drawn(&app(&["10.0.0.5:50000"], 80, 24, 4)));
}

#[test]
fn the_clock_gives_way_to_the_facts_about_the_node() {
    for (width, has_clock) in [(40, false), (60, false), (160, true)] {
        let text = drawn(&app(&["10.0.0.5:50000"], width, 24, 4));
        let header = text.lines().next().unwrap_or_default();
        assert_eq!(header.contains("23:32:14"), has_clock, "{header}");
    }
}

#[test]
fn one_node_on_a_large_terminal() {
    let mut app = app(&["10.0.0.5:50000"], 160, 50, 16);
    log(&mut app, 300);
    insta::assert_snapshot!(drawn(&app));
}

#[test]
fn logs_on_a_small_terminal() {
    let mut app = app(&["10.0.0.5:50000"], 80, 24, 4);
    log(&mut app, 300);
    app.apply(Action::ToggleLogs);
    insta::assert_snapshot!(drawn(&app));
}

#[test]
fn cores_without_room_for_bars_are_one_symbol_each() {
    insta::assert_snapshot!(drawn(&app(&["big"], 80, 24, 128)));
}

#[test]
fn all_nodes_on_a_small_terminal() {
    let mut app = app(&["node1", "node2", "node3"], 80, 24, 4);
    let reason = "cannot reach node 10.0.0.3:50000: Connection refused (os error 111)";
    app.mark_lost(2, Duration::from_secs(30), reason.to_owned());
    insta::assert_snapshot!(drawn(&app));
}

#[test]
fn all_nodes_on_a_large_terminal() {
    let mut app = app(&["node1", "node2", "node3", "node4"], 160, 50, 4);
    app.mark_lost(2, Duration::from_secs(30), "gone".to_owned());
    app.apply(Action::NextNode);
    app.apply(Action::Sort(Sort::Name));
    insta::assert_snapshot!(drawn(&app));
}

#[test]
fn a_lost_node_shows_its_last_readings_dimmed() {
    let mut app = app(&["node1"], 80, 24, 4);
    app.mark_lost(0, Duration::from_secs(30), "Connection refused".to_owned());
    let terminal = drawn_with(&app, Theme::new(true, false));
    let text = terminal.backend().to_string();
    assert!(text.contains("lost for 12 s: Connection refused"), "{text}");
    assert!(text.contains("/usr/bin/web"), "{text}");
    let buffer = terminal.backend().buffer();
    for y in 1..23 {
        let cell = &buffer[(20, y)];
        assert!(
            cell.modifier.contains(ratatui::style::Modifier::DIM),
            "row {y}"
        );
    }
}

#[test]
fn unavailable_readings_show_their_reason() {
    let mut app = App::new(vec!["old".to_owned()], 160, 24);
    app.apply_round(
        0,
        Round {
            services: Some(Err(
                "machine.MachineService/ServiceList is not served".to_owned()
            )),
            processes: Some(Err("not authorized".to_owned())),
            ..test_node::round(1, 2)
        },
    );
    insta::assert_snapshot!(drawn(&app));
}

#[test]
fn help_is_a_popup() {
    let mut app = app(&["node1"], 80, 24, 4);
    app.apply(Action::Help);
    insta::assert_snapshot!(drawn(&app));
    app.apply(Action::Open);
    assert!(!drawn(&app).contains("suspend"), "any key closes the popup");
}

#[test]
fn the_filter_applies_while_it_is_typed() {
    let mut app = app(&["node1"], 80, 24, 4);
    app.apply(Action::EditFilter);
    for c in "WEB".chars() {
        app.apply(Action::Type(c));
    }
    let text = drawn(&app);
    assert!(
        text.contains("1 found") && text.contains("--port 8080"),
        "{text}"
    );
    assert!(!text.contains("postgres"), "{text}");
    app.apply(Action::Back);
    assert!(drawn(&app).contains("postgres"));
}

#[test]
fn text_of_a_node_contains_no_control_characters() {
    let mut app = app(&["nod\x1b[31me\u{202e}"], 120, 50, 4);
    app.apply_log(LogUpdate::Bytes((&b"\x1b[2Jbad\x07\n"[..]).into()));
    app.mark_lost(0, Duration::from_secs(1), "\x1b]0;title\x07".to_owned());
    let terminal = drawn_with(&app, Theme::new(true, false));
    let hidden = |c: char| c.is_control() || c == '\u{202e}';
    for cell in terminal.backend().buffer().content() {
        assert!(!cell.symbol().contains(hidden), "{:?}", cell.symbol());
    }
    assert!(drawn(&app).contains("evil ?[2J?name"));
}

#[test]
fn no_color_disables_colours() {
    let mut app = app(&["a", "b"], 160, 50, 4);
    let coloured = |app: &App, theme| {
        let terminal = drawn_with(app, theme);
        let cells = terminal.backend().buffer().content();
        cells
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    for _ in 0..2 {
        assert!(coloured(&app, Theme::new(true, false)));
        assert!(!coloured(&app, Theme::new(false, false)));
        app.apply(Action::Open);
    }
}

#[test]
fn a_console_with_few_glyphs_gets_ascii() {
    let mut app = app(&["a"], 160, 50, 4);
    app.apply(Action::Help);
    let text = drawn_with(&app, Theme::new(true, true))
        .backend()
        .to_string();
    assert!(text.is_ascii(), "{text}");
}

mod properties {
    //! No sequence of keys, sizes and rounds panics.

    use proptest::prelude::*;

    use super::*;
    use crate::keys::Motion;
    use crate::screen::Pane;

    #[derive(Debug, Clone)]
    enum Step {
        Act(Action),
        Resize(u16, u16),
        Round {
            node: usize,
            second: u32,
            cores: u32,
        },
        Unavailable(usize),
        Lost(usize),
        Log(Vec<u8>),
        LogRestarted,
    }

    fn action() -> impl Strategy<Value = Action> {
        use Action::*;
        let fixed = vec![
            Redraw,
            Help,
            Open,
            Back,
            NextNode,
            PreviousNode,
            NextPane,
            PreviousPane,
            EditFilter,
            Erase,
            EraseAll,
            EndFilter,
            ToggleLogs,
            NextLog,
            PreviousLog,
            Sort(super::Sort::Cpu),
            Sort(super::Sort::Memory),
            Sort(super::Sort::Pid),
            Sort(super::Sort::Name),
            Move(Motion::Up),
            Move(Motion::Down),
            Move(Motion::PageUp),
            Move(Motion::PageDown),
            Move(Motion::Home),
            Move(Motion::End),
        ];
        prop_oneof![9 => prop::sample::select(fixed), 1 => any::<char>().prop_map(Type)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => action().prop_map(Step::Act),
            2 => (0..220_u16, 0..70_u16).prop_map(|(width, height)| Step::Resize(width, height)),
            1 => (0..8_u16, 0..8_u16).prop_map(|(width, height)| Step::Resize(width, height)),
            3 => (0..4_usize, any::<u32>(), 0..300_u32)
                .prop_map(|(node, second, cores)| Step::Round { node, second, cores }),
            1 => (0..4_usize).prop_map(Step::Unavailable),
            1 => (0..4_usize).prop_map(Step::Lost),
            2 => prop::collection::vec(any::<u8>(), 0..400).prop_map(Step::Log),
            1 => Just(Step::LogRestarted),
        ]
    }

    fn perform(app: &mut App, step: Step) {
        match step {
            Step::Act(action) => {
                app.apply(action);
            }
            Step::Resize(width, height) => app.resize(width, height),
            Step::Round {
                node,
                second,
                cores,
            } => app.apply_round(node, test_node::round(second, cores)),
            Step::Unavailable(node) => app.apply_round(
                node,
                Round {
                    system: Some(Err("no".to_owned())),
                    processes: Some(Err("no".to_owned())),
                    ..Round::default()
                },
            ),
            Step::Lost(node) => app.mark_lost(node, Duration::from_secs(7), "why".to_owned()),
            Step::Log(bytes) => app.apply_log(LogUpdate::Bytes(bytes.into())),
            Step::LogRestarted => app.apply_log(LogUpdate::Restarted),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn nothing_panics(
            nodes in 1..4_usize,
            steps in prop::collection::vec(step(), 1..25),
        ) {
            let names = (0..nodes).map(|node| format!("node{node}")).collect();
            let mut app = App::new(names, 80, 24);
            for step in steps {
                perform(&mut app, step);
                drawn_with(&app, Theme::new(true, false));
                prop_assert!(app.screen.node < nodes);
                prop_assert!(app.screen.focus != Pane::Logs || app.open_node().is_none() || app.screen.shows_logs());
            }
        }
    }
}
