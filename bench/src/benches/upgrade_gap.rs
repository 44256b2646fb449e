//! How long the API is away while the node is upgraded: a client polls every 2 ms, each time over a
//! connection of its own. The upgrade is to an image of the same binary, by force.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::TlsClient;
use tokio::net::TcpStream;

use super::{Setup, percentiles};
use crate::report::{Report, Target};
use crate::stats::Samples;

const POLL: Duration = Duration::from_millis(2);
const TARGET_MS: f64 = 100.0;

#[derive(Default)]
struct Polled {
    answers: usize,
    refused: usize,
    longest: Duration,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let rounds = setup.pick(10, 2);
    let node = setup.node();
    let image = node.scratch().join("image.tar");
    let path = image.to_str().context("the scratch directory is no text")?;
    node.cli().run(["upgrade-image", "build", path]).ok();
    let (tls, listen) = (node.admin().tls_client()?, node.listen());
    let (mut gaps, mut worst) = (Samples::default(), Duration::ZERO);
    let (mut answers, mut refused) = (0, 0);
    for _ in 0..rounds {
        let done = Arc::new(AtomicBool::new(false));
        let poller = tokio::spawn(poll(tls.clone(), listen, Arc::clone(&done)));
        let (cli, image) = (node.cli(), path.to_owned());
        let upgrade = move || cli.run(["upgrade", "--force", "--image", &image]);
        let output = tokio::task::spawn_blocking(upgrade).await?;
        done.store(true, Ordering::Relaxed);
        ensure!(output.code == 0, "the upgrade failed: {}", output.stderr);
        let polled = poller.await?;
        gaps.push(polled.longest);
        worst = worst.max(polled.longest);
        answers += polled.answers;
        refused += polled.refused;
    }
    let mut report = Report::new(
        "upgrade-gap",
        format!("longest time without an answer in {rounds} upgrades, polled every 2 ms over TLS"),
    );
    percentiles(&mut report, "longest gap of an upgrade", &mut gaps);
    report.compare(
        "longest gap of all",
        worst.as_secs_f64() * 1e3,
        " ms",
        Some(Target::AtMost(TARGET_MS)),
    );
    report.compare(
        &format!("refused connections of {}", answers + refused),
        f64::from(u32::try_from(refused)?),
        "",
        Some(Target::AtMost(0.0)),
    );
    Ok(report)
}

async fn poll(tls: TlsClient, listen: SocketAddr, done: Arc<AtomicBool>) -> Polled {
    let mut polled = Polled::default();
    let mut ticks = tokio::time::interval(POLL);
    let mut last = Instant::now();
    while !done.load(Ordering::Relaxed) {
        ticks.tick().await;
        let connected = TcpStream::connect(listen).await;
        if connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
            polled.refused += 1;
            continue;
        }
        let Ok(channel) = tls.connect(listen).await else {
            continue;
        };
        if MachineServiceClient::new(channel).version(()).await.is_ok() {
            polled.answers += 1;
            polled.longest = polled.longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    polled
}
