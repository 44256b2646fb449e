use mainstay_identity::{Caller, RULES, Role, authorize, rule};

fn caller(role: Option<Role>) -> Caller {
    Caller {
        name: "alice".into(),
        role,
        ..Caller::loopback_read_only()
    }
}

#[test]
fn the_table_is_sorted_and_has_no_method_twice() {
    for pair in RULES.windows(2) {
        assert!(
            pair[0].method < pair[1].method,
            "{} then {}",
            pair[0].method,
            pair[1].method
        );
    }
}

#[test]
fn every_row_is_found_by_its_method() {
    for row in RULES {
        assert_eq!(rule(row.method), *row);
    }
}

#[test]
fn the_table_has_every_service() {
    let count = |service: &str| {
        let prefix = format!("/{service}/");
        RULES
            .iter()
            .filter(|row| row.method.starts_with(&prefix))
            .count()
    };
    // The machine service has 19 methods of its own and the six of the OS service.
    for (service, methods) in [
        ("os.OSService", 6),
        ("machine.MachineService", 37),
        ("observe.Observe", 2),
        ("runtime.CellService", 6),
        ("aurae.cells.v0.CellService", 5),
        ("aurae.discovery.v0.DiscoveryService", 1),
        ("aurae.observe.v0.ObserveService", 3),
        ("v1alpha.PublicAPI", 7),
        ("services.auth.AuthService", 3),
        ("stats.StatsService", 4),
        ("time.TimeService", 2),
        ("network.NetworkService", 2),
        ("storage.StorageService", 1),
        ("mainstay.NodeService", 4),
        ("schedule.ScheduleService", 6),
        ("grpc.health.v1.Health", 3),
        ("grpc.reflection.v1.ServerReflection", 1),
        ("grpc.reflection.v1alpha.ServerReflection", 1),
    ] {
        assert_eq!(count(service), methods, "{service}");
    }
    assert_eq!(RULES.len(), 94);
}

#[test]
fn the_os_methods_need_the_same_under_both_services() {
    for method in [
        "Containers",
        "Dmesg",
        "Memory",
        "Processes",
        "Restart",
        "Stats",
    ] {
        let os = rule(&format!("/os.OSService/{method}"));
        let machine = rule(&format!("/machine.MachineService/{method}"));
        assert_eq!(
            (os.role, os.audited),
            (machine.role, machine.audited),
            "{method}"
        );
    }
}

#[test]
fn later_clients_need_the_same_under_their_names() {
    for (earlier, later, methods) in [
        (
            "runtime.CellService",
            "aurae.cells.v0.CellService",
            &["Allocate", "Free", "Start", "Stop", "List"][..],
        ),
        (
            "observe.Observe",
            "aurae.observe.v0.ObserveService",
            &["GetAuraeDaemonLogStream", "GetSubProcessStream"],
        ),
    ] {
        for method in methods {
            let earlier = rule(&format!("/{earlier}/{method}"));
            let later = rule(&format!("/{later}/{method}"));
            assert_eq!(
                (earlier.role, earlier.audited),
                (later.role, later.audited),
                "{method}"
            );
        }
    }
}

#[test]
fn roles_are_those_of_the_contract() {
    for (method, role, audited) in [
        ("/os.OSService/Memory", Role::Reader, false),
        ("/os.OSService/Restart", Role::Operator, true),
        ("/machine.MachineService/Logs", Role::Reader, false),
        ("/machine.MachineService/Reboot", Role::Operator, true),
        ("/machine.MachineService/ServiceStop", Role::Operator, true),
        ("/machine.MachineService/Copy", Role::Admin, true),
        ("/machine.MachineService/Read", Role::Admin, true),
        ("/machine.MachineService/Kubeconfig", Role::Admin, true),
        (
            "/machine.MachineService/ApplyConfiguration",
            Role::Admin,
            true,
        ),
        ("/machine.MachineService/Upgrade", Role::Admin, true),
        ("/runtime.CellService/Start", Role::Admin, true),
        ("/runtime.CellService/List", Role::Reader, false),
        (
            "/aurae.discovery.v0.DiscoveryService/Discover",
            Role::Reader,
            false,
        ),
        ("/observe.Observe/GetSubProcessStream", Role::Reader, false),
        ("/v1alpha.PublicAPI/GetLogs", Role::Reader, false),
        ("/services.auth.AuthService/Login", Role::Reader, true),
        ("/services.auth.AuthService/CheckToken", Role::Reader, false),
        ("/stats.StatsService/GetClusterRadar", Role::Reader, false),
        ("/grpc.health.v1.Health/Watch", Role::Reader, false),
        ("/network.NetworkService/Routes", Role::Reader, false),
        ("/storage.StorageService/Disks", Role::Reader, false),
        ("/schedule.ScheduleService/Enable", Role::Admin, true),
        ("/schedule.ScheduleService/Run", Role::Admin, true),
        ("/schedule.ScheduleService/ShowEnabled", Role::Reader, false),
        ("/time.TimeService/Time", Role::Reader, false),
        ("/time.TimeService/TimeCheck", Role::Operator, true),
        ("/mainstay.NodeService/Cgroups", Role::Reader, false),
        ("/mainstay.NodeService/Configuration", Role::Admin, true),
    ] {
        let row = rule(method);
        assert_eq!((row.method, row.role, row.audited), (method, role, audited));
    }
}

#[test]
fn reads_need_a_reader_and_audited_methods_more_except_signing_in() {
    for row in RULES {
        let signs_in_or_out = row.method.ends_with("/Login") || row.method.ends_with("/Logout");
        assert_eq!(
            row.audited,
            row.role > Role::Reader || signs_in_or_out,
            "{}",
            row.method
        );
    }
}

#[test]
fn a_method_without_a_row_is_for_admins_and_audited() {
    for method in [
        "/machine.MachineService/Unheard",
        "",
        "*",
        "/os.OSService/memory",
    ] {
        assert!(rule(method).audited);
        assert!(authorize(Some(&caller(Some(Role::Operator))), method).is_err());
        assert!(authorize(Some(&caller(Some(Role::Admin))), method).is_ok());
    }
}

#[test]
fn each_role_may_call_what_needs_it_or_less() {
    for row in RULES {
        for role in Role::ALL {
            let allowed = authorize(Some(&caller(Some(role))), row.method).is_ok();
            assert_eq!(allowed, role >= row.role, "{role} on {}", row.method);
        }
        assert!(authorize(Some(&caller(None)), row.method).is_err());
        assert!(authorize(None, row.method).is_err());
    }
}

#[test]
fn a_refusal_names_the_needed_role_and_that_of_the_caller() {
    let refusal = |role| {
        let method = "/machine.MachineService/Reboot";
        authorize(Some(&caller(role)), method)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refusal(Some(Role::Reader)),
        "not authorized: /machine.MachineService/Reboot needs os:operator, alice has os:reader"
    );
    assert_eq!(
        refusal(None),
        "not authorized: /machine.MachineService/Reboot needs os:operator, alice has no role"
    );
    assert_eq!(
        authorize(None, "/os.OSService/Stats")
            .unwrap_err()
            .to_string(),
        "not authorized: /os.OSService/Stats needs os:reader, the caller has no identity"
    );
}
