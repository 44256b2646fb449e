//! Every field of `aurae.cells.v0`, as its clients use it.

use std::fs;

use mainstay_api::aurae::cells::v0::cell_service_client::CellServiceClient;
use mainstay_api::aurae::cells::v0::{
    Cell, CellServiceAllocateRequest, CellServiceFreeRequest, CellServiceListRequest,
    CellServiceStartRequest, CellServiceStopRequest, CpuController, CpusetController, Executable,
    MemoryController,
};
use mainstay_api::runtime::ExecutableState;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::cell_node::CellNode;

type Client = CellServiceClient<Channel>;

async fn client(test: &CellNode) -> Client {
    CellServiceClient::new(test.node.connect_locally().await)
}

async fn allocate(client: &mut Client, cell: Cell) -> Result<bool, Status> {
    let request = CellServiceAllocateRequest { cell: Some(cell) };
    let allocated = client.allocate(request).await?.into_inner();
    Ok(allocated.cgroup_v2)
}

async fn free(client: &mut Client, name: &str) {
    let cell_name = name.to_owned();
    let request = CellServiceFreeRequest { cell_name };
    client.free(request).await.unwrap();
}

/// The cell as List shows it.
async fn shown(client: &mut Client, name: &str) -> Cell {
    let listed = client.list(CellServiceListRequest {}).await.unwrap();
    let mut cells = listed.into_inner().cells.into_iter();
    let found = cells.find_map(|node| node.cell.filter(|cell| cell.name == name));
    found.unwrap()
}

async fn start(client: &mut Client, cell: &str, name: &str, command: &str) -> Result<i32, Status> {
    let executable = Executable {
        name: name.to_owned(),
        command: command.to_owned(),
        description: "for people".to_owned(),
    };
    let request = CellServiceStartRequest {
        cell_name: Some(cell.to_owned()),
        executable: Some(executable),
        uid: Some(1234),
        gid: Some(4321),
    };
    let started = client.start(request).await?.into_inner();
    assert_eq!((started.uid, started.gid), (1234, 4321));
    Ok(started.pid)
}

async fn stop(client: &mut Client, cell: &str, name: &str) -> Result<(), Status> {
    let request = CellServiceStopRequest {
        cell_name: Some(cell.to_owned()),
        executable_name: name.to_owned(),
    };
    client.stop(request).await.map(drop)
}

fn named(name: &str) -> Cell {
    Cell {
        name: name.to_owned(),
        ..Cell::default()
    }
}

#[tokio::test]
async fn limits_are_listed_as_they_were_asked_for() {
    let test = CellNode::start("aurae-limits");
    let mut client = client(&test).await;
    let cpu = |weight, max, period| {
        Some(CpuController {
            weight,
            max,
            period,
        })
    };
    let mut asked = Vec::new();
    for weight in [1, 2, 39, 100, 5_000, 9_999, 10_000] {
        asked.push(Cell {
            cpu: cpu(Some(weight), None, None),
            ..named("web")
        });
    }
    asked.push(Cell {
        cpu: cpu(None, Some(50_000), None),
        ..named("web")
    });
    asked.push(Cell {
        cpu: cpu(Some(7), Some(20_000), Some(100_000)),
        isolate_process: true,
        isolate_network: true,
        ..named("web")
    });
    asked.push(Cell {
        cpuset: Some(CpusetController {
            cpus: Some("0".to_owned()),
            mems: Some("0".to_owned()),
        }),
        isolate_process: true,
        ..named("web")
    });
    asked.push(Cell {
        memory: Some(MemoryController {
            low: Some(1 << 20),
            max: Some(64 << 20),
            ..MemoryController::default()
        }),
        isolate_network: true,
        ..named("web")
    });
    let mut v2 = false;
    for cell in asked {
        v2 = allocate(&mut client, cell.clone()).await.unwrap();
        if let Some(weight) = cell.cpu.and_then(|cpu| cpu.weight) {
            let (shares, kernel) = test.traces().cpu_limits_of("web");
            assert!(shares.is_some() || kernel == Some(weight), "{kernel:?}");
        }
        assert_eq!(shown(&mut client, "web").await, cell);
        free(&mut client, "web").await;
    }
    let of_v2 = Cell {
        memory: Some(MemoryController {
            min: Some(0),
            high: Some(32 << 20),
            ..MemoryController::default()
        }),
        ..named("web")
    };
    match allocate(&mut client, of_v2.clone()).await {
        Ok(_) => {
            assert_eq!(shown(&mut client, "web").await, of_v2);
            free(&mut client, "web").await;
        }
        Err(status) => {
            assert_eq!(
                (v2, status.code()),
                (false, Code::FailedPrecondition),
                "{status}"
            );
        }
    }
    // An empty list is none.
    let empty = Cell {
        cpuset: Some(CpusetController {
            cpus: Some(String::new()),
            mems: Some(String::new()),
        }),
        ..named("web")
    };
    allocate(&mut client, empty).await.unwrap();
    assert_eq!(shown(&mut client, "web").await, named("web"));
    test.finish().await;
}

#[tokio::test]
async fn absurd_limits_are_refused() {
    let test = CellNode::start("aurae-absurd");
    let mut client = client(&test).await;
    let cpu = |weight, max, period| Cell {
        cpu: Some(CpuController {
            weight,
            max,
            period,
        }),
        ..named("web")
    };
    let memory = |memory| Cell {
        memory: Some(memory),
        ..named("web")
    };
    let none = MemoryController::default;
    let some = |low, high, max| {
        memory(MemoryController {
            low,
            high,
            max,
            ..none()
        })
    };
    for cell in [
        cpu(Some(0), None, None),
        cpu(Some(10_001), None, None),
        cpu(None, Some(-1), None),
        cpu(None, Some(0), None),
        cpu(None, Some(999), None),
        cpu(None, Some(i64::MAX), None),
        cpu(None, Some(-1), Some(100_000)),
        cpu(None, None, Some(100_000)),
        cpu(None, Some(50_000), Some(0)),
        cpu(None, Some(50_000), Some(999)),
        cpu(None, Some(50_000), Some(1_000_001)),
        cpu(None, Some(50_000), Some(u64::MAX)),
        memory(MemoryController {
            min: Some(-1),
            ..none()
        }),
        some(Some(-1), None, None),
        some(None, Some(-1), None),
        some(None, None, Some(-1)),
        some(None, Some(0), None),
        some(None, None, Some(0)),
    ] {
        let status = allocate(&mut client, cell.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{cell:?}: {status}");
    }
    assert!(test.list().await.is_empty());
    test.finish().await;
}

#[tokio::test]
async fn isolation_is_what_its_fields_say() {
    let test = CellNode::start("aurae-isolation");
    let mut client = client(&test).await;
    let namespaces = |pid: i32| {
        ["pid", "mnt", "ipc", "uts", "net"]
            .map(|kind| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap())
    };
    let own = namespaces(i32::try_from(test.node.pid()).unwrap());
    for (process, network) in [(false, false), (false, true), (true, false), (true, true)] {
        let cell = Cell {
            isolate_process: process,
            isolate_network: network,
            ..named("web")
        };
        allocate(&mut client, cell.clone()).await.unwrap();
        let pid = start(&mut client, "web", "nap", "sleep 1000")
            .await
            .unwrap();
        let isolated: Vec<bool> = namespaces(pid)
            .iter()
            .zip(&own)
            .map(|(inside, outside)| inside != outside)
            .collect();
        assert_eq!(
            isolated,
            // A cell that shares the host's mounts sees them through a mount namespace that follows
            // the host's and hides the node's keys.
            [process, true, process, process, network],
            "{cell:?}"
        );
        assert_eq!(shown(&mut client, "web").await, cell);
        free(&mut client, "web").await;
    }
    test.finish().await;
}

#[tokio::test]
async fn an_executable_is_a_shell_line_that_is_stopped_by_its_name_only() {
    let test = CellNode::start("aurae-stop");
    let mut client = client(&test).await;
    allocate(&mut client, named("web")).await.unwrap();
    let command = "for word in a b; do echo $word $(id -u) $(id -g); done; exec sleep 1000";
    let pid = start(&mut client, "web", "loop", command).await.unwrap();
    assert_eq!(
        test.follow_until("web/loop", "b 1234 4321").await,
        "a 1234 4321\nb 1234 4321\n"
    );
    let status = test.executable("web", "loop").await;
    assert_eq!(status.executable.unwrap().description, "for people");
    for empty in ["", " "] {
        let status = stop(&mut client, "web", empty).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
    let status = test.executable("web", "loop").await;
    assert_eq!(
        (status.pid, status.state()),
        (pid, ExecutableState::Running)
    );
    stop(&mut client, "web", "loop").await.unwrap();
    let status = test.executable("web", "loop").await;
    assert_eq!(status.state(), ExecutableState::Exited);
    let status = stop(&mut client, "web", "nobody").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    test.finish().await;
}
