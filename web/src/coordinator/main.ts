import { mount } from 'svelte'
import Coordinator from './Coordinator.svelte'
import '../app.css'

const target = document.getElementById('app')
if (target === null) throw new Error('coordinator.html has no #app')
mount(Coordinator, { target })
