//! ServiceList, ServiceStart, ServiceStop and ServiceRestart: texts, codes and roles.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{ServiceRestartRequest, ServiceStartRequest, ServiceStopRequest};
use mainstay_identity::Role;
use mainstay_testkit::{TestNode, require};
use tonic::Code;

use super::service_node::{ServiceNode, message, messages};

#[tokio::test]
async fn a_fresh_node_lists_itself() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let listed = machine.service_list(()).await.unwrap().into_inner();
    let [list] = listed.messages.as_slice() else {
        panic!("{listed:?}");
    };
    assert!(list.metadata.is_none());
    let [daemon] = list.services.as_slice() else {
        panic!("{list:?}");
    };
    assert_eq!(
        (daemon.id.as_str(), daemon.state.as_str()),
        ("mainstay", "Running")
    );
    let health = daemon.health.as_ref().unwrap();
    assert!(health.healthy && !health.unknown);
    assert!(
        messages(daemon)
            .iter()
            .any(|text| text.starts_with("serving on "))
    );
    let time = daemon.events.as_ref().unwrap().events[0].ts.unwrap();
    assert!(time.seconds > 1_700_000_000);
}

#[tokio::test]
async fn requests_are_confirmed_in_the_words_of_the_contract() {
    require!(Root);
    let node = ServiceNode::start(
        "services-rpcs",
        "[services.web]\ncommand = ['sleep', '71001']\n\
         [services.locked]\ncommand = ['sleep', '71002']\nallow = ['start']\n\
         [services.bad]\ncommand = 'sh -c \"exit 3\"'\nrestart = 'never'\n",
    );
    node.until_state("web", "Running").await;
    assert_eq!(
        node.start_service("web").await.unwrap(),
        "Service \"web\" started"
    );
    let first = node.pid("web").await;
    assert_eq!(
        node.restart_service("web").await.unwrap(),
        "Service \"web\" restarted"
    );
    node.until_state("web", "Running").await;
    assert_ne!(node.pid("web").await, first);
    assert_eq!(
        node.stop_service("web").await.unwrap(),
        "Service \"web\" stopped"
    );
    assert_eq!(node.pid("web").await, 0);
    assert_eq!(
        node.stop_service("web").await.unwrap(),
        "Service \"web\" stopped"
    );
    assert_eq!(
        node.start_service("web").await.unwrap(),
        "Service \"web\" started"
    );
    node.until_state("web", "Running").await;

    let failed = node.until_state("bad", "Failed").await;
    assert_eq!(message(&failed), "exited with code 3");
    node.restart_service("bad").await.unwrap();
    node.until("bad", |bad| {
        bad.state == "Failed"
            && messages(bad)
                .iter()
                .filter(|text| **text == "starting")
                .count()
                == 2
    })
    .await;

    for (id, code, text) in [
        ("none", Code::NotFound, "service \"none\" not defined"),
        ("", Code::NotFound, "service \"\" not defined"),
        ("a/b\n", Code::NotFound, "service \"a/b\\n\" not defined"),
        (
            "locked",
            Code::FailedPrecondition,
            "service \"locked\" doesn't support stop operation via API",
        ),
        (
            "mainstay",
            Code::FailedPrecondition,
            "service \"mainstay\" doesn't support stop operation via API",
        ),
    ] {
        let error = node.stop_service(id).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (code, text));
    }
    let huge = node.stop_service(&"x".repeat(1 << 20)).await.unwrap_err();
    assert!(huge.message().len() < 300, "{}", huge.message());
    let near = node.start_service("wep").await.unwrap_err();
    assert!(near.message().contains("web"), "{}", near.message());
    let restart = node.restart_service("mainstay").await.unwrap_err();
    assert!(
        restart
            .message()
            .contains("doesn't support restart operation via API")
    );
    assert!(node.start_service("mainstay").await.is_ok());
}

#[tokio::test]
async fn readers_list_and_operators_operate() {
    require!(Root);
    let node = ServiceNode::start(
        "services-roles",
        "[services.web]\ncommand = ['sleep', '71011']\n",
    );
    let as_role = async |role: Role| {
        let credentials = node.node.credentials("someone", &[role]);
        MachineServiceClient::new(node.node.connect_as(&credentials).await)
    };
    let id = || "web".to_owned();
    let mut reader = as_role(Role::Reader).await;
    assert!(reader.service_list(()).await.is_ok());
    for denied in [
        reader
            .service_start(ServiceStartRequest { id: id() })
            .await
            .map(drop),
        reader
            .service_stop(ServiceStopRequest { id: id() })
            .await
            .map(drop),
        reader
            .service_restart(ServiceRestartRequest { id: id() })
            .await
            .map(drop),
    ] {
        assert_eq!(denied.unwrap_err().code(), Code::PermissionDenied);
    }
    let mut operator = as_role(Role::Operator).await;
    operator
        .service_restart(ServiceRestartRequest { id: id() })
        .await
        .unwrap();
    operator
        .service_stop(ServiceStopRequest { id: id() })
        .await
        .unwrap();
    operator
        .service_start(ServiceStartRequest { id: id() })
        .await
        .unwrap();
}
