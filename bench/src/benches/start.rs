//! How long it takes from making the process to the first answer: on a state directory that is
//! there, as after an upgrade or a reboot, and on none, when a certificate authority is made.

use anyhow::Result;
use tempfile::TempDir;

use super::Setup;
use crate::client::Credentials;
use crate::report::{Report, Target};
use crate::server::Server;
use crate::stats::Samples;

const TARGET_MS: f64 = 100.0;

/// The times of several starts of the same kind.
#[derive(Default)]
struct Starts {
    ready: Samples,
    answered: Samples,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let (starts, first_starts) = setup.pick((20, 5), (3, 1));
    let mut report = Report::new(
        "start",
        format!("from spawn to ready and to the first Version; {starts} starts, in turns"),
    );
    let state = TempDir::with_prefix("mainstay-bench-")?;
    let (mut warm, mut floor, mut first) =
        (Starts::default(), Starts::default(), Starts::default());

    let node = Server::node(&setup.binary, state.path()).await?;
    // On another port the node would have to issue its client configuration anew.
    let listen = node.address();
    node.stop().await?;
    let credentials = Credentials::of(state.path())?;
    for _ in 0..starts {
        let node = Server::node_at(&setup.binary, state.path(), listen).await?;
        warm.add(&node, &credentials).await?;
        node.stop().await?;
        floor
            .add(&Server::floor(state.path()).await?, &credentials)
            .await?;
    }
    for _ in 0..first_starts {
        let state = TempDir::with_prefix("mainstay-bench-")?;
        let node = Server::node(&setup.binary, state.path()).await?;
        first.add(&node, &Credentials::of(state.path())?).await?;
    }

    warm.show(&mut report, "mainstay, state is there");
    floor.show(&mut report, "floor");
    first.show(&mut report, "mainstay, first start");
    report.compare(
        "start to the first answer, p50",
        warm.answered.percentile_us(50) / 1e3,
        " ms",
        Some(Target::AtMost(TARGET_MS)),
    );
    report.ratio(
        "start to the first answer, p50 against the floor",
        warm.answered.percentile_us(50) / floor.answered.percentile_us(50),
        None,
    );
    Ok(report)
}

impl Starts {
    async fn add(&mut self, server: &Server, credentials: &Credentials) -> Result<()> {
        let mut client = credentials.connect(server.address()).await?;
        client.version(()).await?;
        self.answered.push(server.age());
        self.ready.push(server.ready_after());
        Ok(())
    }

    fn show(&mut self, report: &mut Report, subject: &str) {
        report.figure(subject, "ready p50 ms", self.ready.percentile_us(50) / 1e3);
        let answered = &mut self.answered;
        report.figure(subject, "answer p50 ms", answered.percentile_us(50) / 1e3);
        report.figure(
            subject,
            "answer worst ms",
            answered.percentile_us(100) / 1e3,
        );
    }
}
