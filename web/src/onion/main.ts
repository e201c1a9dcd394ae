import { mount } from 'svelte'
import Onion from './Onion.svelte'
import '../app.css'

const target = document.getElementById('app')
if (target === null) throw new Error('onion.html has no #app')
mount(Onion, { target })
