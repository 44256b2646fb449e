//! Services: how long 200 of them take to start against a shell that starts the same processes, the
//! own cost of a restart, and what 1,000 idle ones cost the daemon.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{
    Event, EventsRequest, ServiceRestartRequest, ServiceStartRequest, ServiceStateEvent,
    ServiceStopRequest,
};
use mainstay_testkit::procfs::{Memory, context_switches, cpu_seconds};
use mainstay_testkit::{Sweeper, TestNode};
use rustix::process::{Pid, Signal, kill_process_group};
use tonic::Streaming;
use tonic::transport::Channel;

use super::{Setup, percentiles, watch};
use crate::report::{Report, Target};
use crate::stats::Samples;

const PROGRAM: &str = "sleep 1000000";

struct ServiceNode {
    node: TestNode,
    machine: MachineServiceClient<Channel>,
    // Declared last: services outlive their node.
    _sweeper: Sweeper,
}

impl ServiceNode {
    async fn start(setup: &Setup, services: &str) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "services need root; run this as root"
        );
        let sweeper = Sweeper::start("bench");
        let config = format!(
            "[cells]\ncgroup = \"{}/cells\"\n{services}",
            sweeper.cgroup()
        );
        let node = TestNode::builder()
            .program(&setup.binary)
            .config(&config)
            .start();
        let machine = MachineServiceClient::new(node.connect_locally().await);
        Ok(Self {
            node,
            machine,
            _sweeper: sweeper,
        })
    }

    /// The changes of services from now on.
    async fn changes(&mut self) -> Result<Streaming<Event>> {
        let stream = self.machine.events(EventsRequest::default()).await?;
        let mut stream = stream.into_inner();
        stream.message().await?.context("no hello")?;
        Ok(stream)
    }

    async fn start_service(&mut self, id: &str) -> Result<()> {
        let request = ServiceStartRequest { id: id.to_owned() };
        self.machine.service_start(request).await?;
        Ok(())
    }

    async fn stop_service(&mut self, id: &str) -> Result<()> {
        let request = ServiceStopRequest { id: id.to_owned() };
        self.machine.service_stop(request).await?;
        Ok(())
    }
}

/// Waits until a service is running.
async fn until_running(changes: &mut Streaming<Event>, id: &str) -> Result<()> {
    loop {
        let event = changes.message().await?.context("the stream has ended")?;
        let data = event.data;
        let state = data.and_then(|data| event::unpack::<ServiceStateEvent>(&data).ok());
        if state.is_some_and(|state| state.service == id && state.action() == Action::Running) {
            return Ok(());
        }
    }
}

/// `last` requires so many services, which all require `first`.
fn diamond(count: usize) -> String {
    let command = "command = ['sleep', '1000000']\nenabled = false\n";
    let mut text = format!("[services.first]\n{command}");
    let mut names = Vec::new();
    for number in 0..count {
        text += &format!("[services.s{number}]\n{command}requires = ['first']\n");
        names.push(format!("'s{number}'"));
    }
    text + &format!(
        "[services.last]\n{command}requires = [{}]\n",
        names.join(", ")
    )
}

/// Starts the same processes with a shell; the time until it has started all of them.
fn shell_loop(count: usize) -> Result<Duration> {
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do {PROGRAM} & i=$((i+1)); done; echo started; wait"
    );
    let began = Instant::now();
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = shell.stdout.take().context("no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let took = began.elapsed();
    let group = i32::try_from(shell.id()).ok().and_then(Pid::from_raw);
    kill_process_group(group.context("no group")?, Signal::KILL)?;
    shell.wait()?;
    Ok(took)
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let (count, rounds, restarts) = setup.pick((200, 10, 200), (20, 2, 10));
    let (idle, span) = setup.pick(
        (1000, Duration::from_secs(10)),
        (50, Duration::from_secs(2)),
    );
    let mut report = Report::new(
        "services",
        format!("{count} services with {PROGRAM:?} started {rounds} times, in turns; {idle} idle"),
    );
    let mut node = ServiceNode::start(setup, &diamond(count)).await?;
    let (mut services, mut shell) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        let mut changes = node.changes().await?;
        let began = Instant::now();
        node.start_service("last").await?;
        until_running(&mut changes, "last").await?;
        let took = began.elapsed();
        node.stop_service("last").await?;
        node.stop_service("first").await?;
        let looped = tokio::task::spawn_blocking(move || shell_loop(count)).await??;
        // The first also starts the shims.
        if round > 0 {
            services.push(took);
            shell.push(looped);
        }
    }
    percentiles(&mut report, "services, start to all running", &mut services);
    percentiles(&mut report, "shell loop", &mut shell);
    report.ratio(
        "p50 of services against the shell loop",
        services.percentile_us(50) / shell.percentile_us(50),
        Some(Target::AtMost(1.5)),
    );

    node.start_service("s0").await?;
    let mut times = Samples::default();
    for _ in 0..restarts {
        let mut changes = node.changes().await?;
        let began = Instant::now();
        let request = ServiceRestartRequest {
            id: "s0".to_owned(),
        };
        node.machine.service_restart(request).await?;
        until_running(&mut changes, "s0").await?;
        times.push(began.elapsed());
    }
    percentiles(&mut report, "restart, call to running", &mut times);
    report.compare(
        "p50 of a restart",
        times.percentile_us(50) / 1000.0,
        " ms",
        Some(Target::AtMost(10.0)),
    );
    drop(node);

    let mut node = ServiceNode::start(setup, &diamond(idle)).await?;
    let daemon = node.node.pid();
    let before = Memory::of(daemon)?.resident;
    let mut changes = node.changes().await?;
    node.start_service("last").await?;
    until_running(&mut changes, "last").await?;
    drop(changes);
    let after = Memory::of(daemon)?.resident;
    watch(Duration::from_secs(1)).await;
    let (cpu, switches) = (cpu_seconds(daemon)?, context_switches(daemon)?);
    watch(span).await;
    report.figure("idle daemon", "CPU s", cpu_seconds(daemon)? - cpu);
    let switched = context_switches(daemon)?.saturating_sub(switches);
    report.figure("idle daemon", "switches", switched as f64);
    report.compare(
        "growth of the daemon, RSS",
        after.saturating_sub(before) as f64 / f64::from(1 << 20),
        " MiB",
        Some(Target::AtMost(8.0)),
    );
    Ok(report)
}
