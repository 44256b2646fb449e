//! `mainstay netstat`

use clap::Args;
use mainstay_api::machine::connect_record::{State, TimerActive};
use mainstay_api::machine::netstat_request::{Feature, Filter, L4proto, NetNs};
use mainstay_api::machine::{ConnectRecord, NetstatRequest};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::Table;

/// List network sockets
///
/// Shows connected TCP and UDP sockets by default. Addresses are always numeric; -n is --nodes, as
/// in every command.
#[derive(Debug, Args)]
#[command(
    visible_alias = "ss",
    after_help = "Examples:\n  \
    mainstay netstat -tlp                 processes that listen on TCP\n  \
    mainstay netstat -a -6                all IPv6 sockets\n  \
    mainstay netstat -ap --all-netns      including those of containers\n  \
    mainstay netstat -o json | jq '.[].connectrecord[] | select(.txqueue > 0)'"
)]
pub struct Netstat {
    /// Show TCP sockets
    #[arg(short, long)]
    tcp: bool,

    /// Show UDP sockets
    #[arg(short, long)]
    udp: bool,

    /// Show UDP-Lite sockets
    #[arg(short = 'U', long)]
    udplite: bool,

    /// Show raw sockets
    #[arg(short = 'w', long)]
    raw: bool,

    /// Show IPv4 sockets only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Show IPv6 sockets only
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Show listening sockets only
    #[arg(short, long, conflicts_with = "all")]
    listening: bool,

    /// Show listening sockets too
    #[arg(short, long)]
    all: bool,

    /// Show the PID and name of the process
    #[arg(short, long)]
    programs: bool,

    /// Show UID and inode
    #[arg(short = 'x', long)]
    extend: bool,

    /// Show timers: kind, expiry in seconds, retransmissions, unanswered probes
    #[arg(long)]
    timers: bool,

    /// Network namespaces by name (as in /run/netns) or net:[INODE]; comma-separated or repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    netns: Vec<String>,

    /// Show all network namespaces
    #[arg(long, conflicts_with = "netns")]
    all_netns: bool,
}

impl Netstat {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let answers = client
            .call_all(self.request(), |mut machine, request| async move {
                machine.netstat(request).await
            })
            .await?;
        match global.output {
            Format::Table => {
                let mut table = Table::new(&self.header());
                for Answer { node, message } in answers {
                    for record in message.connectrecord {
                        table.row(self.row(&node, record));
                    }
                }
                client.print_table(table)?;
            }
            format => output::print_answers(format, "machine.Netstat", &answers)?,
        }
        client.finish()
    }

    fn request(&self) -> NetstatRequest {
        let filter = match (self.all, self.listening) {
            (true, _) => Filter::All,
            (_, true) => Filter::Listening,
            _ => Filter::Connected,
        };
        let default = !(self.tcp || self.udp || self.udplite || self.raw);
        let (v4, v6) = (!self.ipv6, !self.ipv4);
        let (tcp, udp) = (self.tcp || default, self.udp || default);
        NetstatRequest {
            filter: filter.into(),
            feature: Some(Feature { pid: self.programs }),
            l4proto: Some(L4proto {
                tcp: tcp && v4,
                tcp6: tcp && v6,
                udp: udp && v4,
                udp6: udp && v6,
                udplite: self.udplite && v4,
                udplite6: self.udplite && v6,
                raw: self.raw && v4,
                raw6: self.raw && v6,
            }),
            netns: Some(NetNs {
                hostnetwork: self.netns.is_empty(),
                netns: self.netns.clone(),
                allnetns: self.all_netns,
            }),
        }
    }

    fn shows_netns(&self) -> bool {
        self.all_netns || !self.netns.is_empty()
    }

    fn header(&self) -> Vec<&'static str> {
        let mut header = vec![
            "NODE", "PROTO", "RECV-Q", "SEND-Q", "LOCAL", "REMOTE", "STATE",
        ];
        if self.extend {
            header.extend(["UID", "INODE"]);
        }
        if self.programs {
            header.push("PID/PROGRAM");
        }
        if self.timers {
            header.push("TIMER");
        }
        if self.shows_netns() {
            header.push("NETNS");
        }
        header
    }

    fn row(&self, node: &str, record: ConnectRecord) -> Vec<String> {
        let mut row = vec![
            node.to_owned(),
            record.l4proto.clone(),
            record.rxqueue.to_string(),
            record.txqueue.to_string(),
            address(&record.localip, record.localport),
            address(&record.remoteip, record.remoteport),
            state(record.state()).to_owned(),
        ];
        if self.extend {
            row.extend([record.uid.to_string(), record.inode.to_string()]);
        }
        if self.programs {
            row.push(match &record.process {
                Some(process) if process.pid > 0 => format!("{}/{}", process.pid, process.name),
                _ => "-".to_owned(),
            });
        }
        if self.timers {
            row.push(timer(&record));
        }
        if self.shows_netns() {
            row.push(record.netns);
        }
        row
    }
}

/// Formats an address and a port: `127.0.0.1:22`, `[::1]:22`, `*` for any port.
fn address(ip: &str, port: u32) -> String {
    let ip = if ip.contains(':') {
        format!("[{ip}]")
    } else {
        ip.to_owned()
    };
    match port {
        0 => format!("{ip}:*"),
        port => format!("{ip}:{port}"),
    }
}

/// Returns the name that `netstat` uses; empty for an unconnected socket.
fn state(state: State) -> &'static str {
    match state {
        State::Reserved => "?",
        State::Close => "",
        State::Closewait => "CLOSE_WAIT",
        State::Lastack => "LAST_ACK",
        other => other.as_str_name(),
    }
}

/// Formats a timer as `netstat -o` does: `keepalive (5.12/0/0)`.
fn timer(record: &ConnectRecord) -> String {
    let kind = match record.tr() {
        TimerActive::Off => "off",
        TimerActive::On => "on",
        TimerActive::Keepalive => "keepalive",
        TimerActive::Timewait => "timewait",
        TimerActive::Probe => "probe",
    };
    let (seconds, hundredths) = (record.timerwhen / 100, record.timerwhen % 100);
    let (retransmissions, unanswered) = (record.retrnsmt, record.timeout);
    format!("{kind} ({seconds}.{hundredths:02}/{retransmissions}/{unanswered})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_addresses_are_bracketed() {
        assert_eq!(address("127.0.0.1", 22), "127.0.0.1:22");
        assert_eq!(address("::", 0), "[::]:*");
        assert_eq!(address("::ffff:10.0.0.1", 443), "[::ffff:10.0.0.1]:443");
    }
}
