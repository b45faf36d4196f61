//! `landfall edge keeper`: holds virtual IPs for the edge beside it, by keepalived.

use anyhow::Result;
use landfall_vip::Keeper;

use super::options::KeeperOptions;
use crate::hub::stop_signals;
use crate::say::say;

pub(super) fn run(options: &KeeperOptions) -> Result<()> {
    // One thread: keepalived ends when the thread that started it does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signals()?;
        let keeper = Keeper::open(&options.dir, &options.keepalived).await?;
        say(&format!("Keeper of virtual IPs at {} is ready.", options.dir.display()));
        keeper.run(stop).await;
        Ok(())
    })
}
