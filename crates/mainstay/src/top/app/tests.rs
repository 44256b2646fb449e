//! What keys and readings do to what is looked at.

use super::*;
use crate::top::model::Reading;
use crate::top::sample;

fn app(nodes: usize) -> App {
    let names = (0..nodes).map(|node| format!("node{node}")).collect();
    let mut app = App::new(names, 80, 24);
    for second in 1..3 {
        for node in 0..nodes {
            app.take_in(node, sample::round(second, 2));
        }
    }
    app
}

fn press(app: &mut App, actions: &[Action]) {
    for action in actions {
        assert_eq!(app.apply(*action), Wish::Nothing);
    }
}

fn first_pid(app: &App) -> i32 {
    let processes = app.node().unwrap().processes.known().unwrap();
    processes.list[app.processes[app.screen.first_process]]
        .info
        .pid
}

#[test]
fn one_node_is_open_from_the_start_and_many_are_chosen_from() {
    assert_eq!(app(1).open_node(), Some(0));
    let mut app = app(3);
    assert_eq!(app.open_node(), None);
    press(&mut app, &[Action::Move(Motion::Down), Action::Open]);
    assert_eq!(app.open_node(), Some(1));
    press(&mut app, &[Action::NextNode]);
    assert_eq!(app.open_node(), Some(2));
    press(&mut app, &[Action::NextNode]);
    assert_eq!(app.open_node(), Some(0), "round and round");
    press(&mut app, &[Action::PreviousNode, Action::Back]);
    assert_eq!((app.open_node(), app.screen.node), (None, 2));
}

#[test]
fn there_is_nothing_behind_the_only_node() {
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
    assert_eq!(app.order, [0, 1, 2], "as they were given");
}

#[test]
fn more_nodes_than_lines_scroll_with_the_cursor() {
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
    app.take_in(0, sample::round(3, 2));
    assert_eq!(app.processes.len(), 40, "the filter holds for what comes");
    press(&mut app, &[Action::Back]);
    assert_eq!((app.processes.len(), app.screen.first_process), (45, 0));
}

#[test]
fn what_is_read_in_a_log_stays_in_sight_while_more_comes() {
    let mut app = app(1);
    press(&mut app, &[Action::ToggleLogs, Action::PreviousPane]);
    assert_eq!(app.screen.focus, Pane::Logs);
    let lines = |count: usize| LogNews::Bytes("line\n".repeat(count).into());
    app.take_in_log(lines(100));
    assert_eq!(app.screen.lines_below, 0, "the newest are followed");
    press(&mut app, &[Action::Move(Motion::PageUp)]);
    let below = app.screen.lines_below;
    assert!(below > 0);
    app.take_in_log(lines(7));
    assert_eq!(app.screen.lines_below, below + 7);
    press(&mut app, &[Action::Move(Motion::End)]);
    assert_eq!(app.screen.lines_below, 0);
    press(&mut app, &[Action::Move(Motion::Home)]);
    app.take_in_log(lines(5000));
    assert!(app.screen.lines_below < 1000, "the oldest are gone");
}

#[test]
fn the_log_is_one_the_node_has() {
    let mut app = app(1);
    assert_eq!(app.log_id(), Some("audit"));
    press(&mut app, &[Action::NextLog]);
    assert_eq!(app.log_id(), Some("audit"), "none is shown");
    press(&mut app, &[Action::ToggleLogs, Action::NextLog]);
    assert_eq!(app.log_id(), Some("mainstay"));
    press(&mut app, &[Action::NextLog]);
    assert_eq!(app.log_id(), Some("audit"));
    press(&mut app, &[Action::PreviousLog]);
    app.nodes[0].logs = Reading::Known(vec!["kernel".to_owned()]);
    assert_eq!(app.log_id(), Some("kernel"));
    app.nodes[0].logs = Reading::Known(Vec::new());
    assert_eq!(app.log_id(), None);
    press(&mut app, &[Action::NextLog]);
}

#[test]
fn a_node_that_is_gone_is_forgotten_by_nobody_else() {
    let mut app = app(2);
    app.lose(0, Duration::from_secs(5), "gone".to_owned());
    assert!(app.nodes[0].is_lost() && !app.nodes[1].is_lost());
    app.take_in(1, sample::round(4, 2));
    app.take_in(0, sample::round(9, 2));
    assert!(!app.nodes[0].is_lost());
    app.take_in(77, sample::round(9, 2));
    app.lose(77, Duration::ZERO, String::new());
}
