//! A store whose transactions are counted and timed.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;

use super::{
    ChangeMark, ChangesBody, Durability, MachineStore, SnapshotBody, StoreUnavailable, TransactionBody,
    WriteLock,
};
use crate::machines::token;
use crate::metrics::ServerMetrics;

/// See the module.
#[derive(Debug)]
pub struct MeteredStore {
    store: Box<dyn MachineStore>,
    metrics: Arc<ServerMetrics>,
}

impl MeteredStore {
    #[must_use]
    pub fn new(store: Box<dyn MachineStore>, metrics: &Arc<ServerMetrics>) -> Self {
        Self { store, metrics: Arc::clone(metrics) }
    }

    fn timed(
        &self,
        operation: &'static str,
        run: impl FnOnce(&dyn MachineStore) -> Result<()>,
    ) -> Result<()> {
        let since = Instant::now();
        let result = run(&*self.store);
        let error = result.as_ref().err().map(|error| match error.is::<StoreUnavailable>() {
            true => "unavailable",
            false => "failed",
        });
        self.metrics.transaction_ended(operation, since.elapsed(), error);
        result
    }
}

impl MachineStore for MeteredStore {
    fn key(&self) -> [u8; token::KEY] {
        self.store.key()
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    fn check(&self) -> Result<()> {
        self.timed("check", |store| store.check())
    }

    fn transact(&self, lock: WriteLock, durability: Durability, change: TransactionBody<'_>) -> Result<()> {
        let operation = match lock {
            WriteLock::Machines => "change",
            WriteLock::Run(_) => "report",
        };
        self.timed(operation, |store| store.transact(lock, durability, change))
    }

    fn look(&self, look: SnapshotBody<'_>) -> Result<()> {
        self.timed("read", |store| store.look(look))
    }

    fn look_at_changes(&self, since: Option<&ChangeMark>, look: ChangesBody<'_>) -> Result<()> {
        self.timed("read", |store| store.look_at_changes(since, look))
    }
}
