//! Pods and their containers, through CRI and through containerd itself.

use mainstay_container_clients::cri::StopPodSandboxRequest;
use mainstay_testkit::require;
use tonic::Code;

use super::*;

const WAITS: &str = "trap 'exit 0' TERM; sleep 1000000 & wait";

#[tokio::test]
async fn pods_and_their_containers_have_the_same_ids_in_both_drivers() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let mut cart = containerd.pod("cart-0").await;
    let first = cart.run("app", 0, "exit 3").await;
    let second = cart.run("app", 1, WAITS).await;
    let side = cart.run("side", 0, WAITS).await;
    let gone = containerd.pod("gone").await;
    let request = StopPodSandboxRequest {
        pod_sandbox_id: gone.id.clone(),
    };
    gone.client().stop_pod_sandbox(request).await.unwrap();

    let node = node_of(&containerd);
    let channel = node.connect().await;
    let exited = async {
        loop {
            let all = containers(&channel, "k8s.io", CRI).await.unwrap();
            let first = all.iter().find(|c| c.internal_id == first).unwrap();
            if first.status == "CONTAINER_EXITED" {
                return all;
            }
        }
    };
    let all = soon("the first instance's end", exited).await;
    let shown: Vec<_> = all
        .iter()
        .map(|c| (&*c.id, &*c.internal_id, &*c.status))
        .collect();
    let expected = [
        ("shop/cart-0", &*cart.id, "SANDBOX_READY"),
        ("shop/cart-0:app", &*first, "CONTAINER_EXITED"),
        ("shop/cart-0:app", &*second, "CONTAINER_RUNNING"),
        ("shop/cart-0:side", &*side, "CONTAINER_RUNNING"),
        ("shop/gone", &*gone.id, "SANDBOX_NOTREADY"),
    ];
    assert_eq!(shown, expected);
    let plain = containers(&channel, "k8s.io", CONTAINERD).await.unwrap();
    assert_eq!(plain.len(), all.len());
    for (cri, plain) in all.iter().zip(&plain) {
        let runs = ["SANDBOX_READY", "CONTAINER_RUNNING"].contains(&&*cri.status);
        assert_eq!(plain.status, if runs { "RUNNING" } else { "STOPPED" });
        assert_eq!(cri.pid != 0, runs);
        let status = plain.status.clone();
        let same = ContainerInfo {
            status,
            ..cri.clone()
        };
        assert_eq!(*plain, same);
        assert_eq!(cri.namespace, "k8s.io");
    }
    let app = &all[2];
    assert_eq!(
        (&*app.pod_id, &*app.name, &*app.uid),
        ("shop/cart-0", "app", "uid-of-cart-0")
    );
    assert_eq!(app.image, "mainstay.test/busybox:1");
    runs(app.pid, "trap").await;
    assert_eq!(all[0].image, "mainstay.test/pause:1");
    assert_eq!((&*all[0].pod_id, &*all[0].name), ("shop/cart-0", "cart-0"));

    let json = node.cli().run(["containers", "-k", "-o", "json"]).json();
    assert_eq!(json[0]["containers"][2]["podId"], "shop/cart-0");
    let table = node.cli().run(["containers", "-k"]).ok();
    assert_eq!(table.lines().count(), 6, "{table}");
}

#[tokio::test]
async fn pods_are_measured_and_stopped_for_their_kubelet() {
    const HELD_BYTES: u64 = 24 << 20;
    require!(Containerd);
    let containerd = TestContainerd::start();
    let mut pod = containerd.pod("cart-0").await;
    let holds = "dd if=/dev/zero of=/dev/shm/held bs=1048576 count=24; echo held; \
                 trap 'exit 0' TERM; sleep 1000000 & wait";
    let app = pod.run("app", 0, holds).await;
    pod.run("side", 0, WAITS).await;
    let log = pod.log_file("app", 0);
    let held = async {
        while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("F held")) {
            tokio::task::yield_now().await;
        }
    };
    soon("the memory to be held", held).await;
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let by_cri = stats(&channel, "k8s.io", CRI).await.unwrap();
    let by_containerd = stats(&channel, "k8s.io", CONTAINERD).await.unwrap();
    for stats in [&by_cri, &by_containerd] {
        let ids: Vec<&str> = stats.iter().map(|stat| stat.id.as_str()).collect();
        assert_eq!(ids, ["shop/cart-0", "shop/cart-0:app", "shop/cart-0:side"]);
        let memory = |at: usize| stats[at].memory_usage;
        // A tmpfs in a pod is shared, and charged to the container that wrote first.
        assert!(
            (HELD_BYTES..HELD_BYTES + (8 << 20)).contains(&memory(1)),
            "{stats:?}"
        );
        assert!(
            (1..8 << 20).contains(&memory(0)),
            "the sandbox's own: {stats:?}"
        );
        assert!((1..8 << 20).contains(&memory(2)), "{stats:?}");
        assert!(stats.iter().all(|stat| stat.cpu_usage > 0), "{stats:?}");
        assert!(stats.iter().all(|stat| stat.pod_id == "shop/cart-0"));
    }

    restart(&channel, "k8s.io", "shop/cart-0:side", CRI)
        .await
        .unwrap();
    let all = containers(&channel, "k8s.io", CRI).await.unwrap();
    let side = by_id(&all, "shop/cart-0:side");
    assert_eq!((&*side.status, side.pid), ("CONTAINER_EXITED", 0));
    let again = restart(&channel, "k8s.io", "shop/cart-0:side", CRI)
        .await
        .unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert!(again.message().contains("kubelet"), "{again}");

    // The other driver does the same, also by the runtime's own id.
    restart(&channel, "k8s.io", &app, CONTAINERD).await.unwrap();
    let all = containers(&channel, "k8s.io", CONTAINERD).await.unwrap();
    assert_eq!(by_id(&all, "shop/cart-0:app").status, "STOPPED");
    let said = node.cli().run(["restart", "-k", "shop/cart-0"]).ok();
    assert!(said.contains("stopped; its kubelet"), "{said}");
    let all = containers(&channel, "k8s.io", CRI).await.unwrap();
    assert_eq!(by_id(&all, "shop/cart-0").status, "SANDBOX_NOTREADY");
    let zero = stats(&channel, "k8s.io", CRI).await.unwrap();
    assert!(
        zero.iter()
            .all(|stat| (stat.memory_usage, stat.cpu_usage) == (0, 0)),
        "{zero:?}"
    );

    let unknown = restart(&channel, "k8s.io", "shop/none:app", CRI)
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "container \"shop/none:app\" not found");
}
