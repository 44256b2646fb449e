//! A node whose archives try to leave the directory they are unpacked to.

use std::convert::Infallible;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mainstay_api::common::Data;
use mainstay_testkit::Cli;
use prost::Message;
use tokio::net::UnixListener;

/// Answers every call with one message and success.
async fn serve(listener: UnixListener, message: Bytes) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let message = message.clone();
        let service = hyper_util::service::TowerToHyperService::new(tower::service_fn(move |_| {
            let message = message.clone();
            async move {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                let frames = [Frame::data(message), Frame::trailers(trailers)];
                let frames = stream::iter(frames.map(Ok::<_, Infallible>));
                let response = Response::builder()
                    .header("content-type", "application/grpc")
                    .body(StreamBody::new(frames))
                    .unwrap();
                Ok::<_, Infallible>(response)
            }
        }));
        tokio::spawn(async move {
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// An archive as real `tar` makes it when it is told to keep what leads elsewhere.
fn hostile_archive(dir: &Path) -> Vec<u8> {
    let work = dir.join("work");
    std::fs::create_dir_all(&work).unwrap();
    for (name, text) in [
        ("../up", "up"),
        ("../absolute", "absolute"),
        ("through", "through"),
    ] {
        std::fs::write(work.join(name), text).unwrap();
    }
    std::fs::write(work.join("good"), "good").unwrap();
    std::os::unix::fs::symlink(dir.join("outside"), work.join("link")).unwrap();
    let output = Command::new("tar")
        .args(["-czPf", "-", "--transform=s,^through$,link/through,"])
        .arg("../up")
        .arg(dir.join("absolute"))
        .args(["link", "through", "good"])
        .current_dir(&work)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::remove_file(dir.join("up")).unwrap();
    std::fs::remove_file(dir.join("absolute")).unwrap();
    output.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_lead_elsewhere_are_dropped_and_the_exit_code_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    let outside = dir.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::create_dir_all(&home).unwrap();
    let data = Data {
        metadata: None,
        bytes: hostile_archive(dir.path()).into(),
    }
    .encode_to_vec();
    let mut message = vec![0];
    message.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    message.extend(data);
    let socket = dir.path().join("node.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = tokio::spawn(serve(listener, message.into()));

    let endpoint = format!("unix:{}", socket.display());
    let at = home.clone();
    let copied = tokio::task::spawn_blocking(move || {
        Cli::new(&at).run(["cp", "-e", &endpoint, "/evil", "out"])
    })
    .await
    .unwrap();
    serving.abort();
    let said = copied.failed(1);
    let absolute = dir.path().join("absolute");
    for name in ["../up", absolute.to_str().unwrap(), "link/through"] {
        assert!(
            said.contains(&format!("not unpacked: {name}: dropped: ")),
            "{said}"
        );
    }
    assert_eq!(std::fs::read(home.join("out/good")).unwrap(), b"good");
    assert!(!home.join("up").exists() && !absolute.exists());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}
