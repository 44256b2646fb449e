//! `mainstay cell list`

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use mainstay_api::runtime::{
    CellStatus, ExecutableState, ExecutableStatus, ListCellsRequest, ListCellsResponse,
};

use super::connect;
use super::stop::signal_name;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, duration};

/// List cells and their executables, exited ones included
#[derive(Debug, Args)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:\n  \
    mainstay cell list\n  \
    mainstay cell list web                       cell web and nested cells\n  \
    mainstay cell list -o json | jq '.[].cells[].executables[] | select(.oomKilled)'\n\n\
    EXIT is the exit code, the signal, or OOM-killed. AGE is the time since the start of the\n\
    executable, or since the allocation of a cell without executables."
)]
pub struct List {
    /// Restrict to this cell and its nested cells
    #[arg(value_name = "NAME")]
    cell: Option<String>,
}

impl List {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = ListCellsRequest {
            cell_name: self.cell.unwrap_or_default(),
        };
        let answers = client
            .call_each(client.timeout(), &request, |request| {
                let mut cells = client.cells();
                async move { cells.list(request).await }
            })
            .await?;
        match global.output {
            Format::Table => client.print_table(table(answers, Timestamp::now()))?,
            format => output::print_answers(format, "runtime.ListCellsResponse", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<ListCellsResponse>>, now: Timestamp) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "CELL",
        "EXECUTABLE",
        "STATE",
        "PID",
        "EXIT",
        "AGE",
        "COMMAND",
    ]);
    for Answer { node, message } in answers {
        // Depth first, so that nested cells follow their parent.
        let mut to_show = message.cells;
        to_show.reverse();
        while let Some(status) = to_show.pop() {
            for row in rows(&node, &status, now) {
                table.row(row);
            }
            to_show.extend(status.children.into_iter().rev());
        }
    }
    table
}

fn rows(node: &str, status: &CellStatus, now: Timestamp) -> Vec<Vec<String>> {
    let name = status.cell.as_ref().map_or("-", |cell| &cell.name);
    let row = |columns: [String; 6]| {
        let mut row = vec![node.to_owned(), name.to_owned()];
        row.extend(columns);
        row
    };
    let nothing = || "-".to_owned();
    let shown = |executable: &ExecutableStatus| {
        let spec = executable.executable.clone().unwrap_or_default();
        if !executable.unreadable.is_empty() {
            return row([
                spec.name,
                "unreadable".to_owned(),
                nothing(),
                nothing(),
                nothing(),
                format!("({})", executable.unreadable),
            ]);
        }
        let running = executable.state() == ExecutableState::Running;
        let pid = running.then(|| executable.pid.to_string());
        row([
            spec.name,
            state(executable.state()),
            pid.unwrap_or_else(nothing),
            exit(executable),
            age(executable.started.as_ref(), now),
            spec.command,
        ])
    };
    if !status.unreadable.is_empty() {
        let mut rows = vec![row([
            nothing(),
            "unreadable".to_owned(),
            nothing(),
            nothing(),
            nothing(),
            // In the last column: the reason is long.
            format!("({}; mainstay cell free {name})", status.unreadable),
        ])];
        rows.extend(status.executables.iter().map(shown));
        return rows;
    }
    if status.executables.is_empty() {
        let age = age(status.allocated.as_ref(), now);
        return vec![row([
            nothing(),
            nothing(),
            nothing(),
            nothing(),
            age,
            String::new(),
        ])];
    }
    status.executables.iter().map(shown).collect()
}

fn state(state: ExecutableState) -> String {
    match state {
        ExecutableState::Running => "running",
        ExecutableState::Exited => "exited",
        ExecutableState::Lost => "lost",
        ExecutableState::Unspecified => "-",
    }
    .to_owned()
}

fn exit(executable: &ExecutableStatus) -> String {
    match (executable.state(), executable.signal) {
        (ExecutableState::Exited, _) if executable.oom_killed => "OOM-killed".to_owned(),
        (ExecutableState::Exited, 0) => executable.exit_code.to_string(),
        (ExecutableState::Exited, signal) => signal_name(signal),
        _ => "-".to_owned(),
    }
}

fn age(since: Option<&prost_types::Timestamp>, now: Timestamp) -> String {
    let since = since.and_then(|time| Timestamp::new(time.seconds, time.nanos).ok());
    since.map_or_else(
        || "-".to_owned(),
        // A node whose clock is ahead of ours gives an age of 0.
        |since| duration(Duration::try_from(now.duration_since(since)).unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use mainstay_api::runtime::{Cell, Executable};

    use super::*;

    fn at(second: i64) -> Option<prost_types::Timestamp> {
        Some(prost_types::Timestamp {
            seconds: second,
            nanos: 0,
        })
    }

    fn cell(
        name: &str,
        executables: Vec<ExecutableStatus>,
        children: Vec<CellStatus>,
    ) -> CellStatus {
        CellStatus {
            cell: Some(Cell {
                name: name.to_owned(),
                ..Cell::default()
            }),
            allocated: at(1000),
            executables,
            children,
            ..CellStatus::default()
        }
    }

    fn executable(name: &str, state: ExecutableState) -> ExecutableStatus {
        ExecutableStatus {
            executable: Some(Executable {
                name: name.to_owned(),
                command: format!("{name} --fast\x1b[2J"),
                ..Executable::default()
            }),
            state: state.into(),
            pid: 77,
            started: at(1030),
            ..ExecutableStatus::default()
        }
    }

    #[test]
    fn nested_cells_follow_their_parent() {
        let ended = ExecutableStatus {
            exit_code: 7,
            ..executable("b", ExecutableState::Exited)
        };
        let killed = ExecutableStatus {
            signal: 15,
            ..executable("c", ExecutableState::Exited)
        };
        let starved = ExecutableStatus {
            signal: 9,
            oom_killed: true,
            ..executable("d", ExecutableState::Exited)
        };
        let future = ExecutableStatus {
            started: at(9999),
            ..executable("e", ExecutableState::Lost)
        };
        let deep = cell("web/x/y", vec![ended, killed, starved], Vec::new());
        let nested = cell("web/x", Vec::new(), vec![deep]);
        let running = executable("a", ExecutableState::Running);
        let cells = vec![
            cell("web", vec![running], vec![nested]),
            cell("zoo", vec![future], Vec::new()),
        ];
        let answer = Answer {
            node: "n1".to_owned(),
            message: ListCellsResponse { cells },
        };
        let shown = table(vec![answer], Timestamp::from_second(1090).unwrap());
        insta::assert_snapshot!(shown, @r"
        NODE  CELL     EXECUTABLE  STATE    PID  EXIT        AGE     COMMAND
        n1    web      a           running  77   -           1m 0s   a --fast?[2J
        n1    web/x    -           -        -    -           1m 30s
        n1    web/x/y  b           exited   -    7           1m 0s   b --fast?[2J
        n1    web/x/y  c           exited   -    SIGTERM     1m 0s   c --fast?[2J
        n1    web/x/y  d           exited   -    OOM-killed  1m 0s   d --fast?[2J
        n1    zoo      e           lost     -    -           0 s     e --fast?[2J
        ");
    }
    #[test]
    fn an_unreadable_cell_is_listed_with_the_reason_and_the_remedy() {
        let unreadable = CellStatus {
            unreadable: "record cells/web/cell.json is corrupt: EOF".to_owned(),
            allocated: None,
            ..cell("web", Vec::new(), Vec::new())
        };
        let answer = Answer {
            node: "n1".to_owned(),
            message: ListCellsResponse {
                cells: vec![unreadable],
            },
        };
        let shown = table(vec![answer], Timestamp::from_second(1090).unwrap());
        insta::assert_snapshot!(shown, @r"
        NODE  CELL  EXECUTABLE  STATE       PID  EXIT  AGE  COMMAND
        n1    web   -           unreadable  -    -     -    (record cells/web/cell.json is corrupt: EOF; mainstay cell free web)
        ");
    }
}
