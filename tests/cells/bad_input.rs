//! Requests for cells and their output that mean nothing. Each is refused with a code that says so
//! and a short message, and nothing is left of it.

use mainstay_api::aurae::cells::v0 as later;
use mainstay_api::aurae::cells::v0::cell_service_client::CellServiceClient as LaterCells;
use mainstay_api::aurae::observe::v0 as later_observe;
use mainstay_api::aurae::observe::v0::observe_service_client::ObserveServiceClient as LaterObserve;
use mainstay_api::observe::GetSubProcessStreamRequest;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::runtime::{
    AllocateCellRequest, Cell, CellLimits, Executable, FreeCellRequest, IoLimit, ListCellsRequest,
    StartCellRequest, StopCellRequest,
};
use tonic::{Code, Status};

use super::cell_node::CellNode;
use crate::hostile::assert_unharmed;

/// No message needs more, whatever was sent.
const MAX_MESSAGE_BYTES: usize = 1000;

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, codes: &[Code], what: &str) {
    let what: String = what.chars().take(80).collect();
    let status = answer.expect_err(&what);
    assert!(codes.contains(&status.code()), "{what}: {status}");
    let message = status.message();
    assert!(
        !message.is_empty() && message.len() < MAX_MESSAGE_BYTES,
        "{what}: {status}"
    );
}

const INVALID: &[Code] = &[Code::InvalidArgument];

fn bad_cell_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "", " ", "/", "a/", "/a", "a//b", "-a", "a-", "a/-b", ".", "..", "../x", "a/../b", "a.b",
        "_shims", "a_b", "a b", "a\0b", "a\nb", "ü", "\u{202e}", "*",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(64));
    names.push("x".repeat(1 << 20));
    names.push(["x"; 17].join("/"));
    names.push("x/".repeat(1 << 19));
    names
}

fn bad_executable_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "..", ".hidden", "_x", "-x", "a/b", "a b", "a\0b", "a\n", "ü",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(64));
    names.push("x".repeat(1 << 20));
    names
}

fn a_cell(change: impl FnOnce(&mut Cell)) -> AllocateCellRequest {
    let mut cell = Cell {
        name: "a".to_owned(),
        ..Cell::default()
    };
    change(&mut cell);
    AllocateCellRequest { cell: Some(cell) }
}

fn limits(change: impl FnOnce(&mut CellLimits)) -> AllocateCellRequest {
    let mut limits = CellLimits::default();
    change(&mut limits);
    a_cell(|cell| cell.limits = Some(limits))
}

#[tokio::test]
async fn allocate_refuses_invalid_cells() {
    let test = CellNode::start("bad-allocate");
    let mut cells = test.cells().await;
    let missing = AllocateCellRequest { cell: None };
    refused(cells.allocate(missing).await, INVALID, "no cell");
    for name in bad_cell_names() {
        let request = a_cell(|cell| cell.name.clone_from(&name));
        refused(cells.allocate(request).await, INVALID, &name);
    }
    let orphan = a_cell(|cell| cell.name = "not-there/x".to_owned());
    refused(cells.allocate(orphan).await, &[Code::NotFound], "orphan");
    for shares in [1, 262_145, u64::MAX] {
        let request = a_cell(|cell| cell.cpu_shares = shares);
        refused(cells.allocate(request).await, INVALID, "shares");
    }
    for share in [
        vec![0],
        vec![7],
        vec![-1],
        vec![i32::MAX],
        vec![4],
        vec![1; 9].into_iter().chain([99]).collect(),
    ] {
        let request = a_cell(|cell| cell.share = share);
        refused(cells.allocate(request).await, INVALID, "share");
    }
    for hostname in [
        " ",
        "a b",
        "a\0",
        "ü",
        &"x".repeat(64),
        &"x".repeat(1 << 20),
    ] {
        let request = a_cell(|cell| hostname.clone_into(&mut cell.hostname));
        refused(cells.allocate(request).await, INVALID, hostname);
    }
    for list in [
        "x",
        "-1",
        "3-1",
        "0-",
        ",",
        "99999999999999999999",
        &"0,".repeat(1 << 19),
    ] {
        let request = limits(|limits| list.clone_into(&mut limits.cpus));
        refused(cells.allocate(request).await, INVALID, list);
        let request = limits(|limits| list.clone_into(&mut limits.mems));
        refused(cells.allocate(request).await, INVALID, list);
    }
    for (quota, period) in [(1, 0), (999, 0), (50_000, 1), (50_000, u64::MAX)] {
        let request = limits(|limits| {
            limits.cpu_max_usec = quota;
            limits.cpu_period_usec = period;
        });
        refused(cells.allocate(request).await, INVALID, "quota");
    }
    for device in [
        "",
        "/",
        "/dev/null",
        "nonsense",
        "1:2:3",
        "-1:0",
        "\0",
        &"9".repeat(1 << 20),
    ] {
        let io = IoLimit {
            device: device.to_owned(),
            read_bytes: 1 << 20,
            ..IoLimit::default()
        };
        let request = limits(|limits| limits.io = vec![io]);
        refused(cells.allocate(request).await, INVALID, device);
    }
    // What only the kernel knows: taken whole or refused, and then nothing is there.
    for request in [
        limits(|limits| limits.pids_max = u64::MAX),
        limits(|limits| limits.memory_max = u64::MAX),
        limits(|limits| limits.memory_max = 1),
        limits(|limits| limits.cpus = "65535".to_owned()),
        limits(|limits| limits.cpu_max_usec = i64::MAX),
        limits(|limits| (limits.memory_min, limits.memory_high) = (1 << 20, 2 << 20)),
    ] {
        match cells.allocate(request).await {
            Ok(_) => {
                let cell_name = "a".to_owned();
                cells.free(FreeCellRequest { cell_name }).await.unwrap();
            }
            refusal => refused(
                refusal,
                &[Code::FailedPrecondition, Code::InvalidArgument],
                "limits",
            ),
        }
    }
    assert_eq!(test.list().await, []);
    assert_unharmed(&test.node).await;
    test.finish().await;
}

fn an_executable(change: impl FnOnce(&mut Executable)) -> StartCellRequest {
    let mut executable = Executable {
        name: "x".to_owned(),
        command: "true".to_owned(),
        cell_name: "a".to_owned(),
        ..Executable::default()
    };
    change(&mut executable);
    StartCellRequest {
        executable: Some(executable),
    }
}

#[tokio::test]
async fn start_refuses_invalid_executables() {
    let test = CellNode::start("bad-start");
    test.allocate("a", &[]).await;
    let mut cells = test.cells().await;
    let missing = StartCellRequest { executable: None };
    refused(cells.start(missing).await, INVALID, "no executable");
    for name in bad_cell_names() {
        let request = an_executable(|executable| executable.cell_name.clone_from(&name));
        refused(cells.start(request).await, INVALID, &name);
    }
    for name in bad_executable_names().into_iter().chain([String::new()]) {
        let request = an_executable(|executable| executable.name.clone_from(&name));
        refused(cells.start(request).await, INVALID, &name);
    }
    let stray = an_executable(|executable| executable.cell_name = "b".to_owned());
    refused(cells.start(stray).await, &[Code::NotFound], "no such cell");
    for command in [
        "",
        " ",
        "''",
        "'",
        "\"",
        "a\\",
        "true\0",
        &"x ".repeat(1 << 20),
        &"x".repeat(2 << 20),
    ] {
        let request = an_executable(|executable| command.clone_into(&mut executable.command));
        refused(cells.start(request).await, INVALID, command);
    }
    // As long as may be, and then there is no such program.
    for command in [
        &"x".repeat(1 << 19),
        "/",
        "/etc",
        "/etc/passwd",
        "/proc/self/mem",
        "\u{1}",
    ] {
        let request = an_executable(|executable| command.clone_into(&mut executable.command));
        let codes = [
            Code::NotFound,
            Code::PermissionDenied,
            Code::FailedPrecondition,
        ];
        refused(cells.start(request).await, &codes, command);
    }
    for variable in [
        "",
        "x",
        "=",
        "=x",
        "a=\0",
        &format!("a={}", "x".repeat(1 << 20)),
    ] {
        let request =
            an_executable(|executable| executable.environment = vec![variable.to_owned()]);
        refused(cells.start(request).await, INVALID, variable);
    }
    let request =
        an_executable(|executable| executable.environment = vec!["a=".to_owned(); 1 << 18]);
    refused(
        cells.start(request).await,
        INVALID,
        "a quarter of a million variables",
    );
    for directory in ["x", "../x", "/\0"] {
        let request =
            an_executable(|executable| directory.clone_into(&mut executable.working_directory));
        refused(cells.start(request).await, INVALID, directory);
    }
    for directory in [
        "/no/such/place",
        "/etc/passwd",
        &format!("/{}", "x".repeat(1 << 20)),
    ] {
        let request =
            an_executable(|executable| directory.clone_into(&mut executable.working_directory));
        refused(
            cells.start(request).await,
            &[Code::FailedPrecondition, Code::InvalidArgument],
            directory,
        );
    }
    for id in [Some(u32::MAX)] {
        refused(
            cells.start(an_executable(|one| one.uid = id)).await,
            INVALID,
            "uid",
        );
        refused(
            cells.start(an_executable(|one| one.gid = id)).await,
            INVALID,
            "gid",
        );
    }
    for capability in ["", "CAP_", "everything", "\0", &"x".repeat(1 << 20)] {
        let request = an_executable(|one| one.keep_capabilities = vec![capability.to_owned()]);
        refused(cells.start(request).await, INVALID, capability);
    }
    let nested = format!("{}{}", "[".repeat(1 << 19), "]".repeat(1 << 19));
    for seccomp in [
        "nonsense",
        "{",
        "{}",
        "[]",
        "null",
        "{\"defaultAction\": \"SCMP_ACT_MAYBE\"}",
        "\0",
        &nested,
    ] {
        let request = an_executable(|executable| seccomp.clone_into(&mut executable.seccomp));
        refused(cells.start(request).await, INVALID, seccomp);
    }
    let both = an_executable(|executable| {
        executable.allow_new_privileges = true;
        executable.seccomp = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#.to_owned();
    });
    refused(cells.start(both).await, INVALID, "privileges and a profile");
    assert_eq!(test.list().await[0].executables, []);
    assert_unharmed(&test.node).await;
    test.finish().await;
}

#[tokio::test]
async fn stop_free_and_list_refuse_invalid_names() {
    let test = CellNode::start("bad-stop");
    test.allocate("a", &[]).await;
    let pid = test.start_in("a", "x", "sleep 1000").await;
    let mut cells = test.cells().await;
    for name in bad_cell_names() {
        let cell_name = name.clone();
        refused(
            cells.free(FreeCellRequest { cell_name }).await,
            INVALID,
            &name,
        );
        let stop = StopCellRequest {
            cell_name: name.clone(),
            ..StopCellRequest::default()
        };
        refused(cells.stop(stop).await, INVALID, &name);
        if !name.is_empty() {
            let cell_name = name.clone();
            refused(
                cells.list(ListCellsRequest { cell_name }).await,
                INVALID,
                &name,
            );
        }
    }
    for cell_name in ["b", "a/b", "A"].map(str::to_owned) {
        let not_found = &[Code::NotFound];
        let stop = StopCellRequest {
            cell_name: cell_name.clone(),
            ..StopCellRequest::default()
        };
        refused(cells.stop(stop).await, not_found, &cell_name);
        let list = ListCellsRequest {
            cell_name: cell_name.clone(),
        };
        refused(cells.list(list).await, not_found, &cell_name);
        refused(
            cells.free(FreeCellRequest { cell_name }).await,
            not_found,
            "free",
        );
    }
    let stop = |change: &dyn Fn(&mut StopCellRequest)| {
        let mut request = StopCellRequest {
            cell_name: "a".to_owned(),
            ..StopCellRequest::default()
        };
        change(&mut request);
        request
    };
    for name in bad_executable_names() {
        let request = stop(&|request| request.executable_name.clone_from(&name));
        refused(cells.stop(request).await, INVALID, &name);
    }
    for signal in [-1, 65, 1000, i32::MIN, i32::MAX] {
        let request = stop(&|request| request.signal = signal);
        refused(cells.stop(request).await, INVALID, "signal");
    }
    for (seconds, nanos) in [
        (-1, 0),
        (0, -1),
        (i64::MAX, 0),
        (i64::MIN, i32::MIN),
        (86_401, 0),
    ] {
        let request =
            stop(&|request| request.grace = Some(prost_types::Duration { seconds, nanos }));
        refused(cells.stop(request).await, INVALID, "grace");
    }
    let status = test.executable("a", "x").await;
    assert_eq!(
        (status.pid, status.ended),
        (pid, None),
        "none of it has ended anything"
    );
    assert_unharmed(&test.node).await;
    test.finish().await;
}

#[tokio::test]
async fn the_aurae_service_refuses_alike() {
    let test = CellNode::start("bad-later");
    let mut cells = LaterCells::new(test.node.connect_locally().await);
    let allocate = |change: &dyn Fn(&mut later::Cell)| {
        let mut cell = later::Cell {
            name: "a".to_owned(),
            ..later::Cell::default()
        };
        change(&mut cell);
        later::CellServiceAllocateRequest { cell: Some(cell) }
    };
    let missing = later::CellServiceAllocateRequest { cell: None };
    refused(cells.allocate(missing).await, INVALID, "no cell");
    for name in bad_cell_names() {
        let request = allocate(&|cell| cell.name.clone_from(&name));
        refused(cells.allocate(request).await, INVALID, &name);
        let free = later::CellServiceFreeRequest {
            cell_name: name.clone(),
        };
        refused(cells.free(free).await, INVALID, &name);
        let stop = later::CellServiceStopRequest {
            cell_name: Some(name.clone()),
            executable_name: "x".to_owned(),
        };
        refused(cells.stop(stop).await, INVALID, &name);
        let start = later::CellServiceStartRequest {
            cell_name: Some(name.clone()),
            ..later::CellServiceStartRequest::default()
        };
        refused(cells.start(start).await, INVALID, &name);
    }
    let start = later::CellServiceStartRequest::default();
    refused(cells.start(start).await, INVALID, "nothing at all");
    let stop = later::CellServiceStopRequest::default();
    refused(cells.stop(stop).await, INVALID, "nothing at all");
    for weight in [0, 10_001, u64::MAX] {
        let cpu = later::CpuController {
            weight: Some(weight),
            ..Default::default()
        };
        let request = allocate(&|cell| cell.cpu = Some(cpu));
        refused(cells.allocate(request).await, INVALID, "weight");
    }
    let cpu = later::CpuController {
        max: Some(1),
        period: Some(0),
        ..Default::default()
    };
    refused(
        cells.allocate(allocate(&|cell| cell.cpu = Some(cpu))).await,
        INVALID,
        "period",
    );
    for bytes in [-1, i64::MIN] {
        let memory = later::MemoryController {
            max: Some(bytes),
            ..Default::default()
        };
        let request = allocate(&|cell| cell.memory = Some(memory));
        refused(cells.allocate(request).await, INVALID, "memory");
    }
    for list in ["x", ",", &"9".repeat(1 << 20)] {
        let cpuset = later::CpusetController {
            cpus: Some(list.to_owned()),
            mems: None,
        };
        let request = allocate(&|cell| cell.cpuset = Some(cpuset.clone()));
        refused(cells.allocate(request).await, INVALID, list);
    }
    assert_eq!(test.list().await, []);
    assert_unharmed(&test.node).await;
    test.finish().await;
}

#[tokio::test]
async fn output_of_a_foreign_process_is_refused() {
    let test = CellNode::start("bad-observe");
    test.allocate("a", &[]).await;
    let ours = test.start_in("a", "x", "sleep 1000").await;
    let mut observe = ObserveClient::new(test.node.connect_locally().await);
    let mut later = LaterObserve::new(test.node.connect_locally().await);
    let node = i64::from(test.node.pid());
    let beyond = i64::from(ours) + (1 << 32);
    for process_id in [0, -1, 1, node, -i64::from(ours), beyond, i64::MIN, i64::MAX] {
        let request = GetSubProcessStreamRequest {
            channel_type: 0,
            process_id,
            ..GetSubProcessStreamRequest::default()
        };
        let answer = observe.get_sub_process_stream(request).await;
        refused(
            answer.map(drop),
            &[Code::NotFound],
            "a process of somebody else",
        );
        if let Ok(process_id) = i32::try_from(process_id) {
            let request = later_observe::GetSubProcessStreamRequest {
                channel_type: 1,
                process_id,
            };
            let answer = later.get_sub_process_stream(request).await;
            refused(
                answer.map(drop),
                &[Code::NotFound],
                "a process of somebody else",
            );
        }
    }
    for channel_type in [2, 7, -1, i32::MIN, i32::MAX] {
        let process_id = i64::from(ours);
        let request = GetSubProcessStreamRequest {
            channel_type,
            process_id,
            ..GetSubProcessStreamRequest::default()
        };
        let answer = observe.get_sub_process_stream(request).await;
        refused(answer.map(drop), INVALID, "channel");
    }
    for channel_type in [0, 3, -1] {
        let request = later_observe::GetSubProcessStreamRequest {
            channel_type,
            process_id: ours,
        };
        let answer = later.get_sub_process_stream(request).await;
        refused(answer.map(drop), INVALID, "channel");
    }
    assert_unharmed(&test.node).await;
    test.finish().await;
}
