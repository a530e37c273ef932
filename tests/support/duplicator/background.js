// It is controlled from outside, through DevTools; a worker without a listener would not be started.
chrome.runtime.onInstalled.addListener(() => {});
