//! Health checks over the network: one attempt each, bounded by its caller.

use std::net::SocketAddr;

use mainstay_error_chain::chain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// The status line of a response is within its first bytes.
const MAX_STATUS_LINE_BYTES: usize = 1024;

/// Connects, and nothing else.
pub async fn tcp(address: SocketAddr) -> Result<(), String> {
    let connected = TcpStream::connect(address).await;
    connected
        .map(drop)
        .map_err(|error| format!("cannot connect to {address}: {error}"))
}

/// Sends a GET and reads the status of the response, which must be 200 to 399.
pub async fn http(address: SocketAddr, path: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot ask http://{address}{path}: {error}");
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: mainstay\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut line = Vec::new();
    let mut buffer = [0; 256];
    while !line.contains(&b'\n') && line.len() < MAX_STATUS_LINE_BYTES {
        match stream.read(&mut buffer).await.map_err(failed)? {
            0 => break,
            got => line.extend_from_slice(&buffer[..got]),
        }
    }
    match status_of(&line) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!(
            "http://{address}{path} answered with status {status}"
        )),
        None => Err(format!("http://{address}{path} did not answer with HTTP")),
    }
}

/// The status of a response that starts with `HTTP/1.1 200 OK`.
fn status_of(response: &[u8]) -> Option<u16> {
    let rest = response.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', status @ ..] = rest else {
        return None;
    };
    let digits = status.get(..3)?;
    if status.get(3).is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Asks `grpc.health.v1.Health/Check`, which must answer SERVING.
pub async fn grpc(address: SocketAddr, service: &str) -> Result<(), String> {
    let failed = |error: &dyn std::error::Error| format!("cannot ask {address}: {}", chain(error));
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|error| failed(&error))?;
    let channel = endpoint.connect().await.map_err(|error| failed(&error))?;
    let request = HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = HealthClient::new(channel).check(request).await;
    match answer {
        Ok(answer) => match answer.into_inner().status() {
            ServingStatus::Serving => Ok(()),
            status => Err(format!("{address} answered {}", status.as_str_name())),
        },
        Err(status) => Err(format!(
            "{address} answered {:?}: {}",
            status.code(),
            status.message()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::net::TcpListener;

    #[test]
    fn only_the_status_line_of_http_has_a_status() {
        for (text, status) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 404\r\n", Some(404)),
            ("HTTP/1.1 503 x", Some(503)),
            ("HTTP/1.1 2000 x", None),
            ("HTTP/2 200\r\n", None),
            ("HTTP/1.1 20", None),
            ("SSH-2.0-x\r\n", None),
            ("", None),
        ] {
            assert_eq!(status_of(text.as_bytes()), status, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_response_is_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = status_of(&bytes);
        }
    }

    /// Answers one connection with these bytes.
    async fn answering(bytes: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            stream.write_all(bytes).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn http_checks_tell_why_they_fail() {
        let good = answering(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        http(good, "/").await.unwrap();
        let bad = answering(b"HTTP/1.1 500 Oops\r\n\r\n").await;
        let reason = http(bad, "/live").await.unwrap_err();
        assert!(
            reason.ends_with("/live answered with status 500"),
            "{reason}"
        );
        let other = answering(b"hello").await;
        assert!(http(other, "/").await.unwrap_err().contains("HTTP"));
        // The listener is gone.
        assert!(tcp(other).await.unwrap_err().contains("cannot connect"));
    }

    #[tokio::test]
    async fn grpc_checks_ask_the_standard_service() {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_service_status("down", tonic_health::ServingStatus::NotServing)
            .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let server = tonic::transport::Server::builder().add_service(health);
        tokio::spawn(server.serve_with_incoming(incoming));
        grpc(address, "").await.unwrap();
        assert!(
            grpc(address, "down")
                .await
                .unwrap_err()
                .contains("NOT_SERVING")
        );
        assert!(
            grpc(address, "none")
                .await
                .unwrap_err()
                .contains("NotFound")
        );
    }
}
