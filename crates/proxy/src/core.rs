//! `Core`: what one thread has for itself. Nothing in it is shared, so nobody ever waits for it.
//!
//! `Shared` is what the threads are told: a table, and whether they should end. A thread looks at one number per request to
//! see whether there is a new table.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::HeaderValue;
use landfall_api::landfall::RouteService;
use landfall_runtime::clock;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use crate::beside::Beside;
use crate::clients::Clients;
use crate::config::{Config, StartError};
use crate::guard::Guard;
use crate::http::Upload;
use crate::lane::Scratch;
use crate::log::Log;
use crate::meter::Meters;
use crate::peer::pool::Pool;
use crate::pressure::{self, Lately, Pressure};
use crate::table::{Plan, Table, Tables, Target};
use crate::ticker::Ticker;
use crate::trace::Tracer;
use crate::upstream::Local;

/// What all threads are told.
pub(crate) struct Shared {
    /// What the proxy was given.
    pub(crate) config: Config,
    /// The table.
    pub(crate) tables: Arc<Tables>,
    /// How far the end is.
    pub(crate) phase: watch::Sender<Phase>,
    /// Open connections of clients, those included that speak something else by now.
    pub(crate) connections: AtomicUsize,
    /// What is counted.
    pub(crate) meters: Meters,
    /// What is written down.
    pub(crate) log: Log,
    /// Who is told of traces.
    pub(crate) tracer: Option<Tracer>,
    /// Requests of other edges are counted under this.
    pub(crate) peer_plan: Arc<Plan>,
    /// And those that no route is known of.
    pub(crate) no_plan: Arc<Plan>,
    /// TLS, the link between edges, and ports that are carried as they are.
    pub(crate) beside: Beside,
    /// What is never spoken to.
    pub(crate) guard: Arc<Guard>,
    /// How near the memory is to its end.
    pub(crate) pressure: Arc<Pressure>,
    /// The proxy's clock begins here.
    pub(crate) began: Instant,
}

/// How far the end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Nothing was told yet, and nobody is let in.
    #[default]
    Closed,
    /// Requests are served.
    Serving,
    /// No connection is taken any more, and those that are there end with their request.
    Draining,
    /// All end now.
    Ending,
}

/// A table as one thread holds it.
pub(crate) type HeldTable = Rc<Arc<Table>>;

/// Rooms for requests that a thread keeps, and those for what clients have sent.
const SCRATCHES_MAX: usize = 64;
const INBOXES_MAX: usize = 64;
/// What is read at once from a client, and what an inbox that is kept may hold.
const READ: usize = 4096;

/// What one thread has for itself.
pub(crate) struct Core {
    /// What all threads are told.
    pub(crate) shared: Arc<Shared>,
    /// Which thread it is.
    pub(crate) index: usize,
    /// Time, for all that can run out.
    pub(crate) ticker: Rc<Ticker>,
    /// Open connections.
    pub(crate) clients: Clients,
    /// Requests in flight, and those of them that began lately.
    pub(crate) requests: Cell<usize>,
    pub(crate) new_requests: Lately,
    /// Clients that were let in lately while there was hardly any memory, and are still here.
    pub(crate) new_clients: Lately,
    /// Clients that are being told that there is no room.
    pub(crate) turned_away: Cell<usize>,
    /// The table that was last seen.
    table: RefCell<HeldTable>,
    generation: Cell<u64>,
    locals: RefCell<HashMap<u64, Rc<Local>>>,
    luck: Cell<u64>,
    requests_max: usize,
    threads: usize,
    scratches: RefCell<Vec<Scratch>>,
    /// Where clients' bytes are read to, and what holds them while there are any.
    room: RefCell<Box<[u8]>>,
    inboxes: RefCell<Vec<Vec<u8>>>,
    /// The next request that belongs to no trace begins one: the lane left it to hyper for that.
    pub(crate) trace_next: Cell<bool>,
    /// The second, and the header.
    date: RefCell<(u64, HeaderValue)>,
    /// Connections to other edges.
    pub(crate) peers: Pool<Upload>,
}

impl Shared {
    pub(crate) fn new(config: Config, registry: &Registry, tasks: &Tasks) -> Result<Self, StartError> {
        let began = clock::instant();
        let tables = Arc::new(Tables::new(&config, began));
        let guard = Arc::new(Guard::new(&config));
        tasks.spawn_until_stop(guard.clone().follow());
        let pressure = Arc::new(Pressure::default());
        if let Some(memory) = config.limits.memory.clone() {
            tasks.spawn_until_stop(pressure::follow(pressure.clone(), memory));
        }
        let beside = Beside::new(&config, tables.clone(), &guard, registry, tasks)?;
        let plan =
            |name: &str| Plan { id: 0, name: name.into(), hsts: None, proxy_header: false, clients: None };
        Ok(Self {
            phase: watch::Sender::default(),
            connections: AtomicUsize::new(0),
            meters: Meters::new(registry),
            log: Log::new(&config, registry)?,
            tracer: Tracer::new(&config, &beside.backend, registry, tasks)?,
            tables,
            beside,
            peer_plan: Arc::new(plan("peer")),
            no_plan: Arc::new(plan("")),
            guard,
            pressure,
            began,
            config,
        })
    }

    /// Something that is not the same twice.
    pub(crate) fn seed(&self) -> u64 {
        u64::try_from(clock::since_epoch().as_nanos()).unwrap_or(1)
    }

    /// The proxy's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.tables.now_ms()
    }
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, seed: u64) -> Self {
        let threads = shared.config.cores();
        Self {
            ticker: Rc::new(Ticker::new(shared.began)),
            table: RefCell::new(Rc::new(shared.tables.load_full())),
            generation: Cell::new(u64::MAX),
            locals: RefCell::default(),
            peers: Pool::new(shared.beside.link.clone()),
            clients: Clients::default(),
            requests: Cell::new(0),
            new_requests: Lately::default(),
            new_clients: Lately::default(),
            turned_away: Cell::new(0),
            luck: Cell::new(seed | 1),
            requests_max: shared.config.limits.requests.div_ceil(threads),
            threads,
            scratches: RefCell::default(),
            room: RefCell::new(vec![0; READ].into()),
            inboxes: RefCell::default(),
            trace_next: Cell::new(false),
            date: RefCell::new((0, HeaderValue::from_static(""))),
            shared,
            index,
        }
    }

    /// The table as it is now.
    pub(crate) fn table(&self) -> HeldTable {
        let generation = self.shared.tables.generation();
        if generation != self.generation.get() {
            *self.table.borrow_mut() = Rc::new(self.shared.tables.load_full());
            self.generation.set(generation);
        }
        self.table.borrow().clone()
    }

    /// The service that another edge names.
    pub(crate) fn named_by_peer(&self, service: &RouteService) -> Option<Arc<Target>> {
        let known = self.table().target_of_peer(service).cloned();
        known.or_else(|| self.shared.tables.named_by_peer(service))
    }

    /// This thread's part of a target.
    pub(crate) fn local(&self, target: &Arc<Target>) -> Rc<Local> {
        let version = target.version();
        let mut locals = self.locals.borrow_mut();
        if let Some(local) = locals.get(&target.id).filter(|local| local.version == version) {
            return local.clone();
        }
        let before = locals.get(&target.id).map(|local| &**local);
        let local = Rc::new(Local::new(target, version, before));
        locals.insert(target.id, local.clone());
        local
    }

    /// Looks at this thread's part of every target that it has seen.
    pub(crate) fn each_local(&self, mut look: impl FnMut(&Local)) {
        self.locals.borrow().values().for_each(|local| look(local));
    }

    /// Forgets targets that are no more, and connections that nobody has needed for a while.
    pub(crate) fn sweep(&self) {
        // A thread without requests lets go of an old table too.
        drop(self.table());
        let idle_ms = crate::ticker::millis(self.shared.config.limits.idle_upstream);
        let oldest_ms = self.ticker.now_ms().saturating_sub(idle_ms);
        self.locals.borrow_mut().retain(|_, local| {
            local.sweep(oldest_ms);
            for endpoint in local.leave_out_slow(self.ticker.now_ms()) {
                local.tell_left_out(self, &endpoint, "left out: it is slower than the others");
            }
            local.is_wanted()
        });
    }

    /// Whether there are too many requests in flight, with so many more.
    pub(crate) fn is_full(&self, more: usize) -> bool {
        self.requests.get() + more > self.requests_max || self.lacks_memory(more)
    }

    /// Whether there are too many new ones for the memory that is left.
    pub(crate) fn lacks_memory(&self, more: usize) -> bool {
        let most = self.shared.pressure.new_requests(self.threads);
        most.is_some_and(|most| self.new_requests.count(self.ticker.now_ms()) + more > most)
    }

    /// Whether there is room for one more client.
    pub(crate) fn lets_in(&self) -> bool {
        let most = self.shared.pressure.new_clients(self.threads);
        most.is_none_or(|most| self.new_clients.count(self.ticker.now_ms()) < most)
    }

    /// How long a client may take nothing of what is there for it.
    pub(crate) fn patience(&self) -> Duration {
        let usual = self.shared.config.limits.write_timeout;
        self.shared.pressure.patience().map_or(usual, |less| usual.min(less))
    }

    /// A client is let in: what it is counted under until it goes, if that matters now.
    pub(crate) fn counts_client(&self) -> Option<u64> {
        self.shared.pressure.new_clients(self.threads).map(|_| self.new_clients.begin(self.ticker.now_ms()))
    }

    /// Room for the bytes of a request.
    pub(crate) fn scratch(&self) -> Scratch {
        self.scratches.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps that room for the next.
    pub(crate) fn keep(&self, mut scratch: Scratch) {
        let mut scratches = self.scratches.borrow_mut();
        if scratches.len() < SCRATCHES_MAX {
            scratch.clear();
            scratches.push(scratch);
        }
    }

    /// Reads what a client has sent, and puts it behind what it had sent before.
    pub(crate) fn read(
        &self,
        stream: Pin<&mut impl AsyncRead>,
        cx: &mut Context<'_>,
        inbox: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let mut room = self.room.borrow_mut();
        let mut room = ReadBuf::new(&mut room);
        ready!(stream.poll_read(cx, &mut room))?;
        if room.filled().is_empty() {
            return Poll::Ready(Ok(0));
        }
        if inbox.capacity() == 0
            && let Some(kept) = self.inboxes.borrow_mut().pop()
        {
            *inbox = kept;
        }
        inbox.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Keeps an empty inbox for the next client that sends something.
    pub(crate) fn keep_inbox(&self, inbox: Vec<u8>) {
        let mut inboxes = self.inboxes.borrow_mut();
        if (1..=READ).contains(&inbox.capacity()) && inboxes.len() < INBOXES_MAX {
            inboxes.push(inbox);
        }
    }

    /// The value of a `Date` header.
    pub(crate) fn date(&self) -> HeaderValue {
        let second = self.ticker.now_ms() / 1000;
        let mut date = self.date.borrow_mut();
        if date.0 != second || date.1.is_empty() {
            let now = httpdate::fmt_http_date(clock::now());
            *date = (second, HeaderValue::try_from(now).expect("a date is visible ASCII"));
        }
        date.1.clone()
    }

    /// A random number; fit for choices, not for secrets.
    pub(crate) fn luck(&self) -> u64 {
        let mut luck = self.luck.get();
        luck ^= luck << 13;
        luck ^= luck >> 7;
        luck ^= luck << 17;
        self.luck.set(luck);
        luck.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}
