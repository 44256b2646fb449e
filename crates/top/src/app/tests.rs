//! Effects of keys and rounds on the selection.

use super::*;
use crate::model::Reading;
use crate::test_node;

fn app(nodes: usize) -> App {
    let names = (0..nodes).map(|node| format!("node{node}")).collect();
    let mut app = App::new(names, 80, 24);
    for second in 1..3 {
        for node in 0..nodes {
            app.apply_round(node, test_node::round(second, 2));
        }
    }
    app
}

fn press(app: &mut App, actions: &[Action]) {
    for action in actions {
        assert_eq!(app.apply(*action), Effect::None);
    }
}

fn first_pid(app: &App) -> i32 {
    let processes = app.node().unwrap().processes.known().unwrap();
    processes.list[app.processes[app.screen.first_process]]
        .info
        .pid
}

#[test]
fn a_single_node_opens_at_start_and_several_show_the_overview() {
    assert_eq!(app(1).open_node(), Some(0));
    let mut app = app(3);
    assert_eq!(app.open_node(), None);
    press(&mut app, &[Action::Move(Motion::Down), Action::Open]);
    assert_eq!(app.open_node(), Some(1));
    press(&mut app, &[Action::NextNode]);
    assert_eq!(app.open_node(), Some(2));
    press(&mut app, &[Action::NextNode]);
    assert_eq!(app.open_node(), Some(0), "wraps around");
    press(&mut app, &[Action::PreviousNode, Action::Back]);
    assert_eq!((app.open_node(), app.screen.node), (None, 2));
}

#[test]
fn back_keeps_a_single_node_open() {
    let mut app = app(1);
    press(&mut app, &[Action::Back]);
    assert_eq!(app.open_node(), Some(0));
}

#[test]
fn the_cursor_stays_on_its_node_when_the_order_changes() {
    let mut app = app(3);
    app.nodes[1].name = "a first".to_owned();
    press(&mut app, &[Action::Move(Motion::End)]);
    assert_eq!(app.screen.node, 2);
    press(&mut app, &[Action::Sort(Sort::Name)]);
    assert_eq!(app.order, [1, 0, 2]);
    assert_eq!(app.screen.node, 2);
    press(&mut app, &[Action::Move(Motion::Home)]);
    assert_eq!(app.screen.node, 1);
    press(&mut app, &[Action::Sort(Sort::Pid)]);
    assert_eq!(app.order, [0, 1, 2], "the order of the command line");
}

#[test]
fn the_overview_scrolls_with_the_cursor() {
    let mut app = app(100);
    press(&mut app, &[Action::Move(Motion::End)]);
    assert_eq!((app.screen.node, app.screen.first_node), (99, 79));
    press(&mut app, &[Action::Move(Motion::PageUp)]);
    assert_eq!((app.screen.node, app.screen.first_node), (78, 78));
    app.resize(80, 4);
    assert!(app.screen.first_node <= 78);
}

#[test]
fn processes_are_sorted_and_filtered() {
    let mut app = app(1);
    assert_eq!(first_pid(&app), 2048, "the busiest");
    press(&mut app, &[Action::Sort(Sort::Pid)]);
    assert_eq!(first_pid(&app), 1);
    press(&mut app, &[Action::Sort(Sort::Memory)]);
    assert_eq!(first_pid(&app), 2048);
    press(&mut app, &[Action::Sort(Sort::Name)]);
    assert_eq!(first_pid(&app), 3001, "evil comes first");
    press(&mut app, &[Action::EditFilter]);
    press(
        &mut app,
        &"Worker ".chars().map(Action::Type).collect::<Vec<_>>(),
    );
    assert_eq!(app.processes.len(), 40);
    press(&mut app, &[Action::EndFilter, Action::Move(Motion::End)]);
    assert!(app.screen.first_process > 0);
    app.apply_round(0, test_node::round(3, 2));
    assert_eq!(
        app.processes.len(),
        40,
        "the filter applies to later rounds"
    );
    press(&mut app, &[Action::Back]);
    assert_eq!((app.processes.len(), app.screen.first_process), (45, 0));
}

#[test]
fn a_scrolled_log_keeps_its_visible_lines() {
    let mut app = app(1);
    press(&mut app, &[Action::ToggleLogs, Action::PreviousPane]);
    assert_eq!(app.screen.focus, Pane::Logs);
    let lines = |count: usize| LogUpdate::Bytes("line\n".repeat(count).into());
    app.apply_log(lines(100));
    assert_eq!(app.screen.lines_below, 0, "the latest are followed");
    press(&mut app, &[Action::Move(Motion::PageUp)]);
    let below = app.screen.lines_below;
    assert!(below > 0);
    app.apply_log(lines(7));
    assert_eq!(app.screen.lines_below, below + 7);
    press(&mut app, &[Action::Move(Motion::End)]);
    assert_eq!(app.screen.lines_below, 0);
    press(&mut app, &[Action::Move(Motion::Home)]);
    app.apply_log(lines(5000));
    assert!(app.screen.lines_below < 1000, "the oldest are gone");
}

#[test]
fn the_followed_log_is_one_of_the_node() {
    let mut app = app(1);
    assert_eq!(app.log_id(), Some("mainstay"), "that of the daemon");
    press(&mut app, &[Action::NextLog]);
    assert_eq!(app.log_id(), Some("mainstay"), "no log is visible");
    press(&mut app, &[Action::ToggleLogs, Action::NextLog]);
    assert_eq!(app.log_id(), Some("audit"));
    press(&mut app, &[Action::NextLog]);
    assert_eq!(app.log_id(), Some("mainstay"));
    press(&mut app, &[Action::PreviousLog]);
    app.nodes[0].logs = Reading::Known(vec!["kernel".to_owned()]);
    assert_eq!(app.log_id(), Some("kernel"));
    app.nodes[0].logs = Reading::Known(Vec::new());
    assert_eq!(app.log_id(), None);
    press(&mut app, &[Action::NextLog]);
}

#[test]
fn a_lost_node_leaves_the_others_up() {
    let mut app = app(2);
    app.mark_lost(0, Duration::from_secs(5), "gone".to_owned());
    assert!(app.nodes[0].is_lost() && !app.nodes[1].is_lost());
    app.apply_round(1, test_node::round(4, 2));
    app.apply_round(0, test_node::round(9, 2));
    assert!(!app.nodes[0].is_lost());
    app.apply_round(77, test_node::round(9, 2));
    app.mark_lost(77, Duration::ZERO, String::new());
}
