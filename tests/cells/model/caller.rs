//! One of the many who call at once: asks for anything at random, and notes what it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, CellStatus, Executable, ExecutableState, ExecutableStatus,
    FreeCellRequest, ListCellsRequest, StartCellRequest, StopCellRequest,
};
use mainstay_testkit::soon;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::calls::{Answer, Call, SeenCell, SeenExecutable};
use super::judge::History;
use super::programs::{How, Program};
use super::traces::Traces;

/// The cells of a tree, by what comes after its name.
const NESTED: [&str; 4] = ["", "/a", "/a/b", "/c"];
const EXECUTABLES: [&str; 2] = ["x", "y"];

pub(super) struct Caller {
    pub(super) client: CellServiceClient<Channel>,
    /// The outermost cell of those it asks about.
    pub(super) tree: String,
    pub(super) history: Arc<History>,
    pub(super) random: fastrand::Rng,
    /// Set before the daemon is killed.
    pub(super) killed: Arc<AtomicBool>,
    /// For who is alone in its tree: nothing may be left the moment it is told so.
    pub(super) alone: Option<Arc<Traces>>,
}

impl Caller {
    /// One call. False if it was not answered, because the daemon is dead.
    pub(super) async fn call_something(&mut self) -> bool {
        let call = self.choose();
        let answer = self.call(&call).await;
        if let Some(traces) = &self.alone {
            look_around(traces, &call, &answer);
        }
        answer != Answer::None
    }

    pub(super) async fn call(&mut self, call: &Call) -> Answer {
        let begun = self.history.begin(call, &EXECUTABLES);
        let what = format!("the answer to {call:?}");
        let answered = soon(&what, perform(&mut self.client, &self.tree, call)).await;
        let answer = match answered {
            Ok(answer) => answer,
            Err(status) => answer_of(call, &status).unwrap_or_else(|| {
                let killed = self.killed.load(Ordering::SeqCst);
                let before = || self.history.last();
                assert!(killed, "{call:?} failed: {status}\n{}", before());
                Answer::None
            }),
        };
        self.history.end(begun, &answer);
        answer
    }

    fn choose(&mut self) -> Call {
        let random = &mut self.random;
        let cell = format!("{}{}", self.tree, random.choice(NESTED).unwrap());
        let executable = random.choice(EXECUTABLES).unwrap();
        let grace_ms = random.choice([0, 20, 200]).unwrap();
        match random.u8(0..100) {
            0..24 => Call::Allocate { cell },
            24..56 => Call::Start {
                cell,
                executable,
                program: random.choice(Program::ALL).unwrap(),
            },
            56..70 => Call::Stop {
                cell,
                executable,
                grace_ms,
            },
            70..76 => Call::StopAll { cell, grace_ms },
            76..85 => Call::Free { cell },
            _ => Call::List { cell },
        }
    }
}

/// The CPU shares of some cells.
pub(super) const SHARES: u64 = 512;
/// The weight that these shares become on cgroup v2.
pub(super) const WEIGHT: u64 = 20;

/// The CPU shares of a cell, always the same for one name.
pub(super) fn cpu_shares(cell: &str) -> Option<u64> {
    cell.ends_with("/a").then_some(SHARES)
}

async fn perform(
    client: &mut CellServiceClient<Channel>,
    tree: &str,
    call: &Call,
) -> Result<Answer, Status> {
    match call.clone() {
        Call::Allocate { cell: name } => {
            let cell = Some(Cell {
                cpu_shares: cpu_shares(&name).unwrap_or(0),
                name,
                ..Cell::default()
            });
            client.allocate(AllocateCellRequest { cell }).await?;
        }
        Call::Start {
            cell,
            executable,
            program,
        } => {
            let executable = Some(Executable {
                name: executable.to_owned(),
                command: program.command().to_owned(),
                cell_name: cell,
                ..Executable::default()
            });
            let started = client.start(StartCellRequest { executable }).await?;
            return Ok(Answer::Started {
                pid: started.into_inner().pid,
            });
        }
        Call::Stop {
            cell,
            executable,
            grace_ms,
        } => stop(client, cell, executable, grace_ms).await?,
        Call::StopAll { cell, grace_ms } => stop(client, cell, "", grace_ms).await?,
        Call::Free { cell: cell_name } => {
            client.free(FreeCellRequest { cell_name }).await?;
        }
        Call::List { cell: cell_name } => {
            let listed = client.list(ListCellsRequest { cell_name }).await?;
            let mut seen = Vec::new();
            for cell in listed.into_inner().cells {
                see(tree, cell, &mut seen);
            }
            return Ok(Answer::Listed(seen));
        }
        Call::Find { .. } | Call::StopPart { .. } | Call::Crash => unreachable!("no call"),
    }
    Ok(Answer::Done)
}

async fn stop(
    client: &mut CellServiceClient<Channel>,
    cell_name: String,
    executable: &str,
    grace_ms: u32,
) -> Result<(), Status> {
    let grace = prost_types::Duration {
        seconds: 0,
        nanos: i32::try_from(grace_ms).unwrap() * 1_000_000,
    };
    let request = StopCellRequest {
        cell_name,
        executable_name: executable.to_owned(),
        signal: 0,
        grace: Some(grace),
    };
    client.stop(request).await.map(drop)
}

/// Takes note of a cell and those nested in it.
fn see(tree: &str, status: CellStatus, seen: &mut Vec<SeenCell>) {
    let name = status.cell.unwrap().name;
    assert!(name.starts_with(tree), "{name} is not in {tree}");
    let executables = status.executables.iter().map(see_executable);
    seen.push(SeenCell {
        executables: executables.collect(),
        name: name.clone(),
    });
    for nested in status.children {
        let inner = &nested.cell.as_ref().unwrap().name;
        let label = inner.strip_prefix(&format!("{name}/"));
        assert!(
            label.is_some_and(|label| !label.contains('/')),
            "{inner} is shown in {name}"
        );
        see(tree, nested, seen);
    }
}

fn see_executable(status: &ExecutableStatus) -> (String, SeenExecutable) {
    let executable = status.executable.as_ref().unwrap();
    let end = match status.state() {
        ExecutableState::Running => None,
        ExecutableState::Exited if status.signal != 0 => Some(How::Signal(status.signal)),
        ExecutableState::Exited => Some(How::Code(status.exit_code)),
        ExecutableState::Lost => Some(How::Lost),
        ExecutableState::Unspecified => panic!("an executable without a state: {status:?}"),
    };
    assert_eq!(end.is_some(), status.ended.is_some(), "{status:?}");
    let seen = SeenExecutable {
        program: Program::of(&executable.command).unwrap(),
        pid: status.pid,
        runs: status.runs,
        end,
    };
    (executable.name.clone(), seen)
}

/// The answer that an error status stands for; `None` if the contract has no such error.
fn answer_of(call: &Call, status: &Status) -> Option<Answer> {
    let says = |text: &str| status.message().contains(text);
    match (status.code(), call) {
        (Code::NotFound, _) if says("does not exist") => Some(Answer::NoCell),
        (Code::NotFound, Call::Stop { .. }) if says("has no executable") => {
            Some(Answer::NoExecutable)
        }
        (Code::NotFound, Call::Start { program, .. }) if says(program.command()) => {
            Some(Answer::NoProgram)
        }
        (Code::AlreadyExists, Call::Allocate { .. }) => Some(Answer::CellExists),
        (Code::AlreadyExists, Call::Start { .. }) => Some(Answer::Running),
        (Code::PermissionDenied, Call::Start { .. }) => Some(Answer::Forbidden),
        _ => None,
    }
}

fn look_around(traces: &Traces, call: &Call, answer: &Answer) {
    match (call, answer) {
        (Call::Free { cell }, Answer::Done) => {
            let left = traces.groups_of(cell);
            assert!(left.is_empty(), "{call:?} has left {left:?}");
        }
        (
            Call::Stop {
                cell, executable, ..
            },
            Answer::Done,
        ) => {
            let left = traces.processes_of(cell, executable);
            assert!(left.is_empty(), "{call:?} has left processes {left:?}");
        }
        _ => {}
    }
}
