//! Logs of containers: from the files their runtimes write.

use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_container_clients::cri::ReopenContainerLogRequest;
use mainstay_testkit::require;
use tonic::{Code, Streaming};

use super::*;
use mainstay_api::common::Data;

fn of(id: &str) -> LogsRequest {
    LogsRequest {
        namespace: "k8s.io".to_owned(),
        id: id.to_owned(),
        driver: CRI.into(),
        tail_lines: -1,
        ..LogsRequest::default()
    }
}

fn plain(id: &str) -> LogsRequest {
    LogsRequest {
        namespace: "default".to_owned(),
        driver: CONTAINERD.into(),
        ..of(id)
    }
}

async fn open(channel: &Channel, request: LogsRequest) -> Result<Streaming<Data>, Status> {
    let mut client = MachineServiceClient::new(channel.clone());
    let answer = soon("the log", client.logs(request)).await?;
    Ok(answer.into_inner())
}

async fn read(channel: &Channel, request: LogsRequest) -> Result<Vec<u8>, Status> {
    let mut stream = open(channel, request).await?;
    let mut bytes = Vec::new();
    while let Some(data) = soon("the log's end", stream.message()).await? {
        assert!(!data.bytes.is_empty());
        bytes.extend_from_slice(&data.bytes);
    }
    Ok(bytes)
}

/// Reads on until the log ends with `end`.
async fn read_until(stream: &mut Streaming<Data>, text: &mut Vec<u8>, end: &str) {
    let reading = async {
        while !text.ends_with(end.as_bytes()) {
            let data = stream.message().await.unwrap().expect("it goes on");
            text.extend_from_slice(&data.bytes);
        }
    };
    soon(end, reading).await;
}

#[tokio::test]
async fn logs_of_pods_are_read_whole_by_their_end_and_as_they_grow() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let mut pod = containerd.pod("cart-0").await;
    let node = node_of(&containerd);
    let channel = node.connect().await;
    // Longer than a line of the file may be, bytes that are no text, and an end without newline.
    let first = "printf '%040000d\\n' 0; printf 'a\\377\\000b\\n'; printf unended";
    pod.run("app", 0, first).await;
    let ended = async {
        loop {
            let all = containers(&channel, "k8s.io", CRI).await.unwrap();
            if by_id(&all, "shop/cart-0:app").pid == 0 {
                return;
            }
        }
    };
    soon("the container's end", ended).await;
    let mut long = vec![b'0'; 40_000];
    long.push(b'\n');
    let whole = async {
        loop {
            let whole = read(&channel, of("shop/cart-0:app")).await.unwrap();
            if whole.ends_with(b"unended") {
                return whole;
            }
        }
    };
    let whole = soon("all of the output", whole).await;
    let expected = [&long[..], b"a\xff\x00b\nunended"].concat();
    assert_eq!(whole, expected, "partial lines are joined");
    let tail = |lines| LogsRequest {
        tail_lines: lines,
        ..of("shop/cart-0:app")
    };
    assert_eq!(read(&channel, tail(0)).await.unwrap(), b"");
    assert_eq!(read(&channel, tail(1)).await.unwrap(), b"unended");
    assert_eq!(read(&channel, tail(3)).await.unwrap(), whole);
    assert_eq!(read(&channel, tail(i32::MAX)).await.unwrap(), whole);
    let by_containerd = LogsRequest {
        driver: CONTAINERD.into(),
        ..of("shop/cart-0:app")
    };
    assert_eq!(read(&channel, by_containerd).await.unwrap(), whole);

    // A later instance has a log of its own, and the one before stays readable.
    let second = pod
        .run("app", 1, "echo second; while :; do sleep 1; done")
        .await;
    let second_log = pod.log_file("app", 1);
    let written = async {
        while !std::fs::read_to_string(&second_log).is_ok_and(|text| text.contains("second")) {
            tokio::task::yield_now().await;
        }
    };
    soon("the second's first line", written).await;
    assert_eq!(
        read(&channel, of("shop/cart-0:app")).await.unwrap(),
        b"second\n"
    );
    assert_eq!(read(&channel, of(&second)).await.unwrap(), b"second\n");
    let previous = LogsRequest {
        previous: true,
        ..of("shop/cart-0:app")
    };
    assert_eq!(read(&channel, previous).await.unwrap(), whole);
    let said = node
        .cli()
        .run(["logs", "-k", "shop/cart-0:app", "--tail", "1"])
        .ok();
    assert_eq!(said, "second\n");
    let said = node
        .cli()
        .run(["logs", "-k", "shop/cart-0:app", "-p", "--tail", "1"])
        .ok();
    assert_eq!(said, "unended");
}

#[tokio::test]
async fn following_a_log_goes_on_when_it_is_rotated() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let mut pod = containerd.pod("cart-0").await;
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let counts = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";
    let id = pod.run("app", 0, counts).await;
    let follow = LogsRequest {
        follow: true,
        ..of("shop/cart-0:app")
    };
    let mut stream = open(&channel, follow).await.unwrap();
    let mut text = Vec::new();
    read_until(&mut stream, &mut text, "\n").await;
    // As a kubelet does it.
    let log = pod.log_file("app", 0);
    for second in 0..3 {
        let lines = text.len();
        std::fs::rename(&log, format!("{}.20260301-12000{second}", log.display())).unwrap();
        let request = ReopenContainerLogRequest {
            container_id: id.clone(),
        };
        pod.client().reopen_container_log(request).await.unwrap();
        let grown = async {
            while text.len() < lines + 100 {
                let data = stream.message().await.unwrap().expect("it goes on");
                text.extend_from_slice(&data.bytes);
            }
        };
        soon("lines after rotation", grown).await;
    }
    let text = String::from_utf8(text).unwrap();
    let expected: String = (1..=text.lines().count())
        .map(|n| format!("{n}\n"))
        .collect();
    assert_eq!(text, expected, "no line is lost or doubled");
}

#[tokio::test]
async fn plain_containers_have_a_log_when_it_goes_to_a_file() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let file = containerd.scratch().join("web.log");
    let uri = format!("file://{}", file.display());
    let waits = ["sh", "-c", "echo one; echo two; sleep 1000000"];
    containerd.run_container("web", &["--log-uri", &uri], &waits);
    containerd.run_container("piped", &[], &waits);
    containerd.run_container("silent", &["--null-io"], &waits);
    let mut pod = containerd.pod("cart-0").await;
    pod.run("app", 0, "true").await;
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let follow = LogsRequest {
        follow: true,
        ..plain("web")
    };
    let mut stream = open(&channel, follow).await.unwrap();
    let mut text = Vec::new();
    read_until(&mut stream, &mut text, "two\n").await;
    assert_eq!(text, b"one\ntwo\n");
    drop(stream);
    let said = node
        .cli()
        .run(["logs", "web", "--namespace", "default", "--tail", "1"])
        .ok();
    assert_eq!(said, "two\n");

    let since = Some(prost_types::Timestamp::default());
    let timed = LogsRequest {
        since,
        ..plain("web")
    };
    let previous = LogsRequest {
        previous: true,
        ..plain("web")
    };
    let own = LogsRequest {
        previous: true,
        ..plain("mainstay")
    };
    for (request, code, words) in [
        (
            plain("piped"),
            Code::FailedPrecondition,
            "program that started it",
        ),
        (plain("silent"), Code::FailedPrecondition, "thrown away"),
        (
            of("shop/cart-0"),
            Code::FailedPrecondition,
            "sandbox of a pod",
        ),
        (timed, Code::FailedPrecondition, "carry no times"),
        (previous, Code::NotFound, "no instance before"),
        (own, Code::InvalidArgument, "the node's own"),
        (
            plain("none"),
            Code::NotFound,
            "container \"none\" not found",
        ),
        (
            of("shop/none:app"),
            Code::NotFound,
            "container \"shop/none:app\" not found",
        ),
    ] {
        let status = read(&channel, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(words), "{status}");
    }

    // The permission to read logs gives no access to other files.
    let log = pod.log_file("app", 0);
    std::fs::remove_file(&log).unwrap();
    let gone = read(&channel, of("shop/cart-0:app")).await.unwrap_err();
    assert_eq!(gone.code(), Code::NotFound);
    assert!(gone.message().contains("does not exist"), "{gone}");
    std::os::unix::fs::symlink("/etc/hostname", &log).unwrap();
    let link = read(&channel, of("shop/cart-0:app")).await.unwrap_err();
    assert_eq!(link.code(), Code::FailedPrecondition, "{link}");
}
