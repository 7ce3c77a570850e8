//! Tests of the views of allocations, load and occupancy. Pages and sums must agree.

use hayward_blocklist_api::{BlockAction, BlockKind};
use hayward_container_manager_api::ContainerState;
use hayward_rm_scheduler_api::load::{ClassLoad, Load, NodesOfOrder, ProcessesOfOrder};
use hayward_rm_scheduler_api::occupancy::{NodeOccupancy, Occupancy};
use hayward_rm_scheduler_api::views::AllocationList;
use hayward_service::Code;
use hayward_testkit::until;

use super::fixture::Fixture;
use super::neighbours::{block, job, service};

impl Fixture {
    async fn load(&self) -> Load {
        self.client("viewer").get("/v1/load").await.unwrap()
    }

    async fn occupancy(&self, query: &str) -> Occupancy {
        let path = format!("/v1/occupancy{query}");
        self.client("viewer").get(&path).await.unwrap()
    }
}

/// Starts a fleet of five nodes, of which `n5` is marked. A service uses one quantum, and a job
/// with six processes of two quanta uses all other space except one quantum.
async fn busy_fixture() -> Fixture {
    let fixture = Fixture::new(&[4, 4, 4, 2, 2]).await;
    let mut mark = block(BlockKind::Node, "n5", None);
    mark.action = BlockAction::Mark;
    fixture.neighbours.block(&mark);
    until("the mark", async || {
        let shares = fixture.shares().await?;
        (shares.pools.first()?.blocked == 2).then_some(())
    })
    .await;
    fixture.neighbours.submit(&service("svc_a.0", "bob"));
    let all = fixture.until("the service", |all| all.len() == 1).await;
    fixture.report(all.values().next().unwrap(), ContainerState::Running);
    let mut wide = job("job_w", "ann");
    wide.size.memory_bytes *= 2;
    wide.max_processes = 9;
    fixture.neighbours.submit(&wide);
    fixture
        .until("six processes of job_w", |all| all.len() == 1 + 6)
        .await;
    fixture.settle().await;
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_allocations_add_up_to_all() {
    let fixture = Fixture::new(&[5]).await;
    for (work, user) in [("job_a", "ann"), ("job_b", "bob")] {
        fixture.neighbours.submit(&job(work, user));
    }
    fixture.until("five processes", |all| all.len() == 5).await;
    let pages = async |name: &str, filter: &str| {
        let (client, mut found, mut cursor) = (fixture.client(name), Vec::new(), String::new());
        loop {
            let path = format!("/v1/allocations?limit=2{filter}{cursor}");
            let page: AllocationList = client.get(&path).await.unwrap();
            assert!(page.allocations.len() <= 2);
            found.extend(page.allocations.into_iter().map(|view| view.id));
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    };
    let whole: AllocationList = fixture
        .client("viewer")
        .get("/v1/allocations")
        .await
        .unwrap();
    assert_eq!((whole.allocations.len(), &whole.next_cursor), (5, &None));
    let ids: Vec<_> = whole
        .allocations
        .iter()
        .map(|view| view.id.clone())
        .collect();
    assert_eq!(pages("viewer", "").await, ids);
    let ann_ids = whole
        .allocations
        .iter()
        .filter(|view| view.user.as_str() == "ann");
    let ann_ids: Vec<_> = ann_ids.map(|view| view.id.clone()).collect();
    assert_eq!(
        pages("ann", "").await,
        ann_ids,
        "a user sees only own allocations (S12)"
    );
    assert_eq!(pages("viewer", "&work=job_a").await, ann_ids);
    let viewer = fixture.client("viewer");
    let first: AllocationList = viewer.get("/v1/allocations?limit=1").await.unwrap();
    let cursor = first.next_cursor.unwrap();
    let other = format!("/v1/allocations?work=job_a&cursor={cursor}");
    let other = viewer.get::<AllocationList>(&other).await.unwrap_err();
    assert_eq!(
        other.problem().unwrap().status(),
        422,
        "the cursor belongs to another list"
    );
    let none = viewer
        .get::<AllocationList>("/v1/allocations?limit=0")
        .await
        .unwrap_err();
    assert_eq!(none.problem().unwrap().status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_compares_demand_of_classes_with_supply_of_pools() {
    let fixture = busy_fixture().await;
    let load = fixture.load().await;
    let pool = &load.pools[0];
    // Six nodes, with the node `probe` of the fixture, which has no capacity.
    assert_eq!((pool.nodes, pool.up, pool.blocked), (6, 5, 1));
    assert_eq!((pool.total, pool.usable, pool.free), (16, 14, 1));
    // Six processes of the job, of two quanta each, and the service.
    assert_eq!((pool.requested, pool.awarded), (13, 13));
    let nodes_of_order = |order, nodes, up, free, partly| NodesOfOrder {
        order,
        nodes,
        up,
        free,
        partly,
    };
    // One quantum is free on the node of the service.
    assert_eq!(
        pool.orders,
        [
            nodes_of_order(0, 1, 1, 1, 0),
            nodes_of_order(1, 0, 0, 0, 1),
            nodes_of_order(2, 2, 1, 0, 0),
            nodes_of_order(4, 3, 3, 0, 0)
        ]
    );
    let class =
        |class: &str| -> &ClassLoad { load.classes.iter().find(|it| it.class == class).unwrap() };
    let normal = ProcessesOfOrder {
        order: 2,
        wanted: 9,
        requested: 6,
        counted: 6,
        awarded: 6,
        leaving: 0,
    };
    assert_eq!(class("normal").orders, [normal]);
    assert_eq!((class("normal").work, class("normal").waiting), (1, 0));
    assert_eq!(class("service").orders[0].awarded, 1);
    assert_eq!(class("high").orders, []);

    let mut large = job("job_l", "cy");
    large.size.memory_bytes *= 4;
    fixture.neighbours.submit(&large);
    until("waiting work", async || {
        let load = fixture.load().await;
        let normal = load.classes.iter().find(|it| it.class == "normal")?;
        ((normal.work, normal.waiting) == (2, 1)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn occupancy_lists_nodes_with_allocations_in_pages_that_add_up() {
    let fixture = busy_fixture().await;
    let mut nodes: Vec<NodeOccupancy> = Vec::new();
    let mut page = fixture.occupancy("?limit=2").await;
    assert_eq!(page.nodes.len(), 2);
    loop {
        nodes.append(&mut page.nodes);
        let Some(cursor) = page.next_cursor else {
            break;
        };
        let query = format!("?limit=2&cursor={cursor}");
        page = fixture.occupancy(&query).await;
    }
    // The node `probe` of the fixture has no capacity.
    nodes.retain(|node| node.order > 0);
    let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4", "n5"]);
    for node in &nodes {
        assert_eq!(node.order + node.over, node.held + node.free, "{node:?}");
        let held: u64 = node.shares.iter().map(|share| share.order).sum();
        assert_eq!(
            (node.held, node.processes),
            (held, node.shares.len() as u64)
        );
    }
    let shares = fixture.shares().await.unwrap();
    let held: u64 = nodes.iter().map(|node| node.held).sum();
    let free: u64 = nodes.iter().filter(|it| it.up).map(|it| it.free).sum();
    assert_eq!((held, free), (shares.held, shares.free));

    let marked = &nodes[4];
    assert_eq!(
        (marked.up, marked.responsive, marked.online),
        (false, true, true)
    );
    assert_eq!(marked.blocked.as_deref(), Some("it smells"));
    let has_service = |node: &&NodeOccupancy| node.fixed == 1;
    let with_service = nodes.iter().find(has_service).unwrap();
    assert!(!with_service.reservable && !marked.reservable);
    let share = with_service.shares.iter().find(|it| it.fixed).unwrap();
    assert_eq!(
        (share.work.as_str(), share.user.as_str()),
        ("svc_a.0", "bob")
    );
    assert!(with_service.classes.contains(&"normal".to_owned()));

    let page = fixture.occupancy("?node=n5&pool=default").await;
    assert_eq!((page.nodes.len(), page.next_cursor), (1, None));
    assert_eq!(fixture.occupancy("?pool=other").await.nodes, []);
    let viewer = fixture.client("viewer");
    let refused = viewer.get::<Occupancy>("/v1/occupancy?limit=0").await;
    assert_eq!(
        refused.unwrap_err().problem().unwrap().code,
        Code::BadRequest
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn use_beyond_the_capacity_of_a_node_is_shown() {
    let fixture = Fixture::new(&[3, 3]).await;
    let mut demand = job("job_a", "ann");
    demand.max_processes = 6;
    fixture.neighbours.submit(&demand);
    let all = fixture.until("six processes", |all| all.len() == 6).await;
    for entry in all.values() {
        fixture.report(entry, ContainerState::Running);
    }
    fixture.settle().await;
    fixture.neighbours.node("n1", 1);
    let node = until("the smaller node", async || {
        let page = fixture.occupancy("?node=n1").await;
        page.nodes.into_iter().find(|node| node.order == 1)
    })
    .await;
    assert_eq!((node.held, node.over, node.free), (3, 2, 0));
    let shares = until("a round that counts the smaller node", async || {
        let shares = fixture.shares().await?;
        (shares.pools.first()?.over == 2).then_some(shares)
    })
    .await;
    assert_eq!((shares.capacity, shares.held), (4, 6));
}
