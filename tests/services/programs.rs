//! The world that the process of a service sees: the host's, unless the definition says otherwise.

use std::fs;
use std::path::Path;

use mainstay_testkit::require;

use super::service_node::{ServiceNode, message, messages};

#[tokio::test]
async fn a_service_has_the_namespaces_and_the_capabilities_of_the_node() {
    require!(Root);
    let node = ServiceNode::start(
        "services-host",
        "[services.host]\ncommand = \"sh -c 'grep -E ^Cap /proc/self/status; grep -E \\\"^(Seccomp|NoNewPrivs):\\\" /proc/self/status; readlink /proc/self/ns/*; echo end; exec sleep 75001'\"\n",
    );
    let text = node.until_line("host", "end").await;
    let status = fs::read_to_string(format!("/proc/{}/status", node.node.pid())).unwrap();
    for line in status.lines() {
        let compared = ["CapPrm:", "CapEff:", "CapBnd:", "Seccomp:", "NoNewPrivs:"];
        if compared.iter().any(|name| line.starts_with(name)) {
            assert!(
                text.lines().any(|seen| seen == line),
                "{line} is not in {text}"
            );
        }
    }
    for kind in ["net", "mnt", "pid", "ipc", "uts", "cgroup", "user"] {
        let own = fs::read_link(format!("/proc/{}/ns/{kind}", node.node.pid())).unwrap();
        let own = own.display().to_string();
        assert!(
            text.lines().any(|seen| seen == own),
            "{own} is not in {text}"
        );
    }
}

#[tokio::test]
async fn a_service_runs_as_its_user_in_its_directory_with_its_environment() {
    require!(Root);
    let node = ServiceNode::start_with("services-user", |scratch| {
        let file = scratch.join("variables");
        fs::write(&file, "# of a file\nFROM=file\nBOTH=file\n").unwrap();
        format!(
            "[services.who]\n\
             command = \"sh -c 'id -u; id -g; pwd; echo $FROM-$BOTH-$HOME-$USER; cat /proc/self/status | grep CapEff; exec sleep 75011'\"\n\
             user = 'nobody'\ngroup = 4242\nworking_directory = '/usr'\n\
             environment_files = [{file:?}]\n\
             [services.who.environment]\nBOTH = 'own'\n\
             [services.unknown]\ncommand = 'true'\nuser = 'no-such-user'\nrestart = 'never'\n\
             [services.nofile]\ncommand = 'true'\nenvironment_files = ['/no/such/file']\nrestart = 'never'\n"
        )
    });
    let text = node.until_line("who", "CapEff:\t0000000000000000").await;
    let lines: Vec<&str> = text.lines().collect();
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = passwd
        .lines()
        .find(|line| line.starts_with("nobody:"))
        .unwrap();
    let fields: Vec<&str> = nobody.split(':').collect();
    assert_eq!(lines[0], fields[2]);
    assert_eq!(lines[1], "4242");
    assert_eq!(lines[2], "/usr");
    assert_eq!(lines[3], format!("file-own-{}-nobody", fields[5]));
    let unknown = node.until_state("unknown", "Failed").await;
    assert!(message(&unknown).contains("user \"no-such-user\" not found"));
    let nofile = node.until_state("nofile", "Failed").await;
    assert!(message(&nofile).contains("/no/such/file"));
}

#[tokio::test]
async fn a_service_with_limits_is_held_to_them() {
    require!(Root);
    let node = ServiceNode::start(
        "services-limits",
        "[services.small]\ncommand = \"sh -c 'cat /proc/self/cgroup; echo end; exec sleep 75021'\"\n\
         limits = { memory = '64MiB', pids = 20, cpu = 0.5 }\n\
         [services.greedy]\ncommand = \"sh -c 'x=a; while :; do x=$x$x$x$x; done'\"\n\
         limits = { memory = '32MiB' }\nrestart = 'never'\n",
    );
    let text = node.until_line("small", "end").await;
    let find = |name: &str| {
        let trees = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
        let mut roots: Vec<_> = trees.map(|tree| tree.path()).collect();
        roots.push("/sys/fs/cgroup".into());
        let groups = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let groups = groups.filter(|group| group.contains("-services/"));
        let files = groups.flat_map(|group| {
            let group = group.trim_start_matches('/').to_owned();
            roots
                .iter()
                .map(move |root| root.join(&group).join(name))
                .collect::<Vec<_>>()
        });
        let mut found = files
            .into_iter()
            .filter(|file: &std::path::PathBuf| Path::exists(file));
        found
            .next()
            .map(|file| fs::read_to_string(file).unwrap().trim().to_owned())
    };
    let memory = find("memory.max").or_else(|| find("memory.limit_in_bytes"));
    assert_eq!(memory.as_deref(), Some("67108864"), "{text}");
    assert_eq!(find("pids.max").as_deref(), Some("20"), "{text}");
    let greedy = node.until_state("greedy", "Failed").await;
    assert!(message(&greedy).starts_with("OOM-killed"), "{greedy:?}");
}

#[tokio::test]
async fn a_service_with_namespaces_of_its_own_has_these_alone() {
    require!(Root);
    let services = "[services.apart]\ncommand = \"sh -c 'readlink /proc/self/ns/net; readlink /proc/self/ns/ipc; echo end; exec sleep 75031'\"\nisolate = ['network']\n";
    let node = ServiceNode::start("services-isolate", services);
    let text = node.until_line("apart", "end").await;
    let lines: Vec<&str> = text.lines().collect();
    let own = |kind: &str| {
        let link = fs::read_link(format!("/proc/{}/ns/{kind}", node.node.pid())).unwrap();
        link.display().to_string()
    };
    assert_ne!(lines[0], own("net"));
    assert_eq!(lines[1], own("ipc"));
    // Other namespaces take another cell, and its log begins anew.
    node.reload(&services.replace("'network'", "'network', 'ipc'"));
    node.until("apart", |apart| {
        let starts = messages(apart)
            .into_iter()
            .filter(|text| *text == "started");
        apart.state == "Running" && starts.count() == 2
    })
    .await;
    let text = node.until_line("apart", "end").await;
    let lines: Vec<&str> = text.lines().collect();
    assert_ne!(lines[0], own("net"));
    assert_ne!(lines[1], own("ipc"));
}
